package adopt_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/engine/policies"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// planner returns a planner for clusters a, b and c.
func planner(change ...func(*adopt.Options)) *adopt.Planner {
	p := adopt.Options{Interpreter: interpreter.New(interpreter.Options{})}
	for _, name := range []string{"a", "b", "c"} {
		p.Clusters = append(p.Clusters, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, f := range change {
		f(&p)
	}
	return adopt.New(p)
}

type failer interface {
	Helper()
	Fatal(args ...any)
}

func object(t failer, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return obj
}

// group returns a group from the objects of clusters a, b and c.
func group(objects ...*unstructured.Unstructured) adopt.Group {
	g := adopt.Group{Key: adopt.KeyOf(objects[0])}
	for i, obj := range objects {
		g.Objects = append(g.Objects, adopt.Object{Cluster: string(rune('a' + i)), Object: obj})
	}
	return g
}

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, uid: u, resourceVersion: "7", generation: 3, labels: {app: web},
  annotations: {deployment.kubernetes.io/revision: "4", kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec: {containers: [{name: web, image: "registry.example/web:1.2", env: [{name: REGION, value: west}]}]}
status: {replicas: 3}
`

func edited(t failer, text string, replacements ...string) *unstructured.Unstructured {
	t.Helper()
	return object(t, strings.NewReplacer(replacements...).Replace(text))
}

// A Deployment with another image, variable and number of replicas in a second cluster has one template, one override and
// static weights.
func TestPlan(t *testing.T) {
	item, err := planner().Plan(t.Context(), group(object(t, web), edited(t, web, "web:1.2", "web:1.3", "west", "east", "replicas: 3\n", "replicas: 5\n")))
	if err != nil || len(item.Obstacles) > 0 {
		t.Fatalf("err %v, obstacles %v", err, item.Obstacles)
	}
	got, err := yaml.Marshal([]any{item.Override, item.Policy, item.Template.Object})
	if err != nil {
		t.Fatal(err)
	}
	const want = `- apiVersion: policy.karmada.io/v1alpha1
  kind: OverridePolicy
  metadata:
    name: web-deployment
    namespace: shop
  spec:
    overrideRules:
    - overriders:
        imageOverrider:
        - component: Tag
          operator: replace
          predicate:
            path: /spec/template/spec/containers/0/image
          value: "1.3"
        plaintext:
        - operator: replace
          path: /spec/template/spec/containers/0/env/0/value
          value: east
      targetCluster:
        clusterNames:
        - b
    resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      name: web
      namespace: shop
- apiVersion: policy.karmada.io/v1alpha1
  kind: PropagationPolicy
  metadata:
    name: web-deployment
    namespace: shop
  spec:
    conflictResolution: Overwrite
    dependentOverrides:
    - web-deployment
    placement:
      clusterAffinity:
        clusterNames:
        - a
        - b
      replicaScheduling:
        replicaDivisionPreference: Weighted
        replicaSchedulingType: Divided
        weightPreference:
          staticWeightList:
          - targetCluster:
              clusterNames:
              - a
            weight: 3
          - targetCluster:
              clusterNames:
              - b
            weight: 5
    preserveResourcesOnDeletion: true
    resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      name: web
      namespace: shop
    suspension:
      dispatching: true
- apiVersion: apps/v1
  kind: Deployment
  metadata:
    labels:
      app: web
    name: web
    namespace: shop
  spec:
    replicas: 8
    selector:
      matchLabels:
        app: web
    template:
      metadata:
        labels:
          app: web
      spec:
        containers:
        - env:
          - name: REGION
            value: west
          image: registry.example/web:1.2
          name: web
`
	if string(got) != want {
		t.Errorf("got\n%s", got)
	}
}

var cordon = []corev1.Taint{{Key: "cluster.karmada.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}}

func TestObstacles(t *testing.T) {
	role := func(kind, resource string) string {
		return `{apiVersion: rbac.authorization.k8s.io/v1, kind: ` + kind + `, rules: [{apiGroups: [""], resources: [` + resource + `], verbs: [get]}]}`
	}
	node := func(port string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {type: NodePort, clusterIP: 10.0.0.` + port + `, ports: [{port: 80, nodePort: ` + port + `}]}}`
	}
	for name, test := range map[string]struct {
		objects []string
		change  func(*adopt.Options)
		want    string // of an obstacle; empty for none
		leftOut string
	}{
		"equal":            {objects: []string{web, web}},
		"one":              {objects: []string{web}},
		"no replicas":      {objects: []string{web, strings.Replace(web, "replicas: 3\n", "replicas: 0\n", 1)}, leftOut: "b"},
		"controlled":       {objects: []string{strings.Replace(web, "uid: u,", "uid: u, ownerReferences: [{kind: Shop, name: s, controller: true}],", 1)}, want: "Shop s controls it in cluster a"},
		"being deleted":    {objects: []string{strings.Replace(web, "uid: u,", `uid: u, deletionTimestamp: "2026-01-01T00:00:00Z",`, 1)}, want: "being deleted in cluster a"},
		"of others":        {objects: []string{web, strings.Replace(web, "labels: {app: web},", "labels: {app: web, karmada.io/managed: \"true\"},", 1)}, want: "another federation manages it in cluster b"},
		"other selector":   {objects: []string{web, strings.Replace(web, "matchLabels: {app: web}", "matchLabels: {app: x}", 1)}, want: "spec.selector.matchLabels.app differs"},
		"not a member":     {objects: []string{web, web, web, web}, want: "ERROR cluster d is not part"},
		"different roles":  {objects: []string{role("ClusterRole, metadata: {name: r}", "pods"), role("ClusterRole, metadata: {name: r}", "nodes")}, want: "a cluster-scoped object must be the same"},
		"namespaced roles": {objects: []string{role("Role, metadata: {name: r, namespace: shop}", "pods"), role("Role, metadata: {name: r, namespace: shop}", "nodes")}, want: "an override must not change what a Role grants"},
		"cordoned": {
			objects: []string{web, web}, want: "the scheduler would place it as a:3 instead of a:3 b:3",
			change: func(p *adopt.Options) { p.Clusters[1].Spec.Taints = cordon },
		},
		"another override": {
			objects: []string{web}, want: "metadata.labels.colour in cluster a would change",
			change: func(p *adopt.Options) {
				p.Overrides = []*policyv1alpha1.OverridePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}, Spec: policyv1alpha1.OverrideSpec{
					OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{LabelsOverrider: []policyv1alpha1.LabelAnnotationOverrider{{Operator: "add", Value: map[string]string{"colour": "red"}}}}}},
				}}}
			},
		},
		"another policy": {
			objects: []string{web}, want: "PropagationPolicy shop/all selects it",
			change: func(p *adopt.Options) {
				p.Policies = policies.NewIndex()
				priority := int32(1)
				p.Policies.Set(policies.Compile(&policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all"}, Spec: policyv1alpha1.PropagationSpec{
					Priority: &priority, ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
				}}))
			},
		},
		"node ports of their own": {objects: []string{node("30001"), node("30002")}},
		"chosen node ports":       {objects: []string{node("30001"), node("30001")}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []*unstructured.Unstructured
			for _, text := range test.objects {
				objects = append(objects, object(t, text))
			}
			change := test.change
			if change == nil {
				change = func(*adopt.Options) {}
			}
			item, err := planner(change).Plan(t.Context(), group(objects...))
			got := strings.Join(item.Obstacles, "\n")
			if err != nil {
				got = "ERROR " + err.Error()
			}
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("the obstacles are %q, want %q", got, test.want)
			}
			if left := strings.Join(item.LeftOut, " "); left != test.leftOut {
				t.Errorf("left out is %q, want %q", left, test.leftOut)
			}
		})
	}
}

// The node ports that each cluster has allocated are in overrides: those of the template are allocated by the federation.
func TestNodePorts(t *testing.T) {
	const service = `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30001}]}}`
	for second, want := range map[string]string{"30002": "", "30001": "30001"} {
		item, err := planner().Plan(t.Context(), group(object(t, service), edited(t, service, "30001", second)))
		if err != nil || len(item.Obstacles) > 0 {
			t.Fatalf("err %v, obstacles %v", err, item.Obstacles)
		}
		raw, err := item.Template.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "nodePort") != (want != "") || (item.Override == nil) != (want != "") {
			t.Errorf("with node port %s in the second cluster, the template is %s and the override %v", second, raw, item.Override)
		}
		stored := item.Template.DeepCopy() // as an API server stores it
		ports, _, _ := unstructured.NestedSlice(stored.Object, "spec", "ports")
		if want == "" {
			ports[0].(map[string]any)["nodePort"] = int64(31999)
			if err := unstructured.SetNestedSlice(stored.Object, ports, "spec", "ports"); err != nil {
				t.Fatal(err)
			}
		}
		rendered, err := planner().Render(t.Context(), item, stored)
		if err != nil {
			t.Fatal(err)
		}
		for cluster, port := range map[string]string{"a": "30001", "b": second} {
			if raw, _ := rendered[cluster].MarshalJSON(); !strings.Contains(string(raw), `"nodePort":`+port) {
				t.Errorf("cluster %s gets %s", cluster, raw)
			}
		}
	}
}

// What the federation manages already is recognised by the UID of its template.
func TestManaged(t *testing.T) {
	mine := strings.NewReplacer("labels: {app: web},", `labels: {app: web, karmada.io/managed: "true"},`, "annotations: {", "annotations: {resourcetemplate.karmada.io/uid: mine, ").Replace(web)
	for uid, want := range map[string]bool{"mine": true, "other": false, "": false} {
		plan := func(objects ...*unstructured.Unstructured) *adopt.Item {
			g := group(objects...)
			if uid != "" {
				g.Template = edited(t, web, "uid: u,", "uid: "+uid+",")
			}
			item, err := planner().Plan(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			return item
		}
		if item := plan(object(t, mine), object(t, mine)); item.Managed != want || want != (len(item.Obstacles) == 0) {
			t.Errorf("with template %q: managed %v, obstacles %v", uid, item.Managed, item.Obstacles)
		}
		if item := plan(object(t, mine), object(t, web)); item.Managed || len(item.Obstacles) == 0 {
			t.Errorf("with template %q and one cluster: managed %v, obstacles %v", uid, item.Managed, item.Obstacles)
		}
	}
}

// A template of another content is in the way, the one of an interrupted adoption is not.
func TestExistingTemplate(t *testing.T) {
	for template, want := range map[string]string{
		web: "",
		strings.Replace(web, "web:1.2", "web:1.3", 1): "the federation has a Deployment of this name already, with another spec.template.spec.containers[web].image",
	} {
		g := group(object(t, web))
		g.Template = object(t, template)
		item, err := planner().Plan(t.Context(), g)
		if got := strings.Join(item.Obstacles, "; "); err != nil || !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("obstacles %q, want %q: %v", got, want, err)
		}
	}
}

// The federation allocates node ports for a template that may have them. So a Service that has them in some clusters only
// has a template without.
func TestTemplateWithoutNodePorts(t *testing.T) {
	const service = `{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30001}]}}`
	item, err := planner().Plan(t.Context(), group(object(t, service), object(t, service), edited(t, service, "NodePort", "ClusterIP", ", nodePort: 30001", "")))
	if err != nil || len(item.Obstacles) > 0 {
		t.Fatalf("err %v, obstacles %v", err, item.Obstacles)
	}
	if kind, _, _ := unstructured.NestedString(item.Template.Object, "spec", "type"); kind != "ClusterIP" {
		t.Errorf("the template is of type %s", kind)
	}
}
