package merge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cluster is a real API server, used the way the engine uses a member.
type cluster struct {
	t      *testing.T
	client dynamic.Interface
}

func newCluster(t *testing.T) (cluster, string) {
	t.Helper()
	server := testenv.SharedAPIServer(t)
	client, err := dynamic.NewForConfig(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return cluster{t, client}, server.Namespace(t)
}

func (c cluster) resource(obj *unstructured.Unstructured, resource string) dynamic.ResourceInterface {
	gvr := obj.GroupVersionKind().GroupVersion().WithResource(resource)
	if obj.GetNamespace() == "" {
		return c.client.Resource(gvr)
	}
	return c.client.Resource(gvr).Namespace(obj.GetNamespace())
}

func (c cluster) create(obj *unstructured.Unstructured, resource string) {
	c.t.Helper()
	if _, err := c.resource(obj, resource).Create(c.t.Context(), obj, metav1.CreateOptions{FieldManager: merge.FieldManager}); err != nil {
		c.t.Fatalf("creating %s: %v", obj.GetKind(), err)
	}
	if obj.GetNamespace() == "" {
		c.t.Cleanup(func() {
			if err := c.resource(obj, resource).Delete(context.Background(), obj.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				c.t.Errorf("deleting %s %s: %v", obj.GetKind(), obj.GetName(), err)
			}
		})
	}
}

func (c cluster) live(obj *unstructured.Unstructured, resource string) *unstructured.Unstructured {
	c.t.Helper()
	live, err := c.resource(obj, resource).Get(c.t.Context(), obj.GetName(), metav1.GetOptions{})
	if err != nil {
		c.t.Fatalf("reading %s: %v", obj.GetKind(), err)
	}
	return live
}

// update does what the engine does and reports whether it wrote.
func (c cluster) update(desired *unstructured.Unstructured, resource string) bool {
	c.t.Helper()
	merged, changed, err := merge.Update(c.live(desired, resource), desired)
	if err != nil {
		c.t.Fatal(err)
	}
	if changed {
		if _, err := c.resource(desired, resource).Update(c.t.Context(), merged, metav1.UpdateOptions{FieldManager: merge.FieldManager}); err != nil {
			c.t.Fatalf("updating %s: %v", desired.GetKind(), err)
		}
	}
	return changed
}

func (c cluster) patch(obj *unstructured.Unstructured, resource, manager string, kind types.PatchType, patch string, subresources ...string) {
	c.t.Helper()
	_, err := c.resource(obj, resource).Patch(c.t.Context(), obj.GetName(), kind, []byte(patch), metav1.PatchOptions{FieldManager: manager}, subresources...)
	if err != nil {
		c.t.Fatalf("%s patches %s: %v", manager, obj.GetKind(), err)
	}
}

func TestDeploymentOnAPIServer(t *testing.T) {
	c, namespace := newCluster(t)
	manifest := func(change func(obj map[string]any)) *unstructured.Unstructured {
		obj := edited(t, web, change)
		obj.SetNamespace(namespace)
		return merge.Stamp(obj, merge.Marks{WorkName: "web"})
	}
	first := manifest(unchanged)
	c.create(first, "deployments")
	if c.update(first, "deployments") {
		t.Error("wrote right after the create, though only defaults were added")
	}

	// Somebody injects a sidecar and an environment variable, an autoscaler scales.
	c.patch(first, "deployments", "injector", types.StrategicMergePatchType, `{"metadata":{"labels":{"member":"m"}},"spec":{"paused":true,"template":{"spec":{
		"containers":[{"name":"istio","image":"istio:1"},{"name":"app","env":[{"name":"M","value":"m"}]}],
		"initContainers":[{"name":"init","image":"init:1"}]}}}}`)
	if c.update(first, "deployments") {
		t.Error("wrote because of additions of the member")
	}
	c.patch(first, "deployments", "autoscaler", types.MergePatchType, `{"spec":{"replicas":5}}`, "scale")
	retained := first.DeepCopy()
	mustSet(retained.Object, int64(5), "spec", "replicas")
	if c.update(retained, "deployments") {
		t.Error("wrote although the autoscaler's replicas are retained")
	}
	if !c.update(first, "deployments") {
		t.Error("did not reset the replicas")
	}

	stale, _, err := merge.Update(c.live(first, "deployments"), manifest(func(obj map[string]any) { mustSet(obj, int64(8), "spec", "replicas") }))
	if err != nil {
		t.Fatal(err)
	}
	second := manifest(func(obj map[string]any) {
		unstructured.RemoveNestedField(obj, "spec", "minReadySeconds")
		unstructured.RemoveNestedField(obj, "metadata", "labels", "tier")
		mustSet(obj, "Recreate", "spec", "strategy", "type")
		p := podOf(obj)
		delete(p, "serviceAccountName")
		delete(p, "nodeSelector")
		p["containers"] = p["containers"].([]any)[:1]
		p["volumes"] = []any{map[string]any{"name": "data", "configMap": map[string]any{"name": "cm"}}}
		app := containerOf(obj)
		app["image"] = "app:v2"
		app["args"] = []any{"-b"}
		app["ports"] = []any{map[string]any{"containerPort": int64(80)}}
		unstructured.RemoveNestedField(app, "resources", "limits", "memory")
	})
	if !c.update(second, "deployments") {
		t.Error("did not write the new template")
	}
	if c.update(second, "deployments") {
		t.Error("wrote a second time")
	}
	_, err = c.resource(stale, "deployments").Update(t.Context(), stale, metav1.UpdateOptions{FieldManager: merge.FieldManager})
	if !apierrors.IsConflict(err) {
		t.Errorf("a late write got %v, want a conflict", err)
	}

	live := c.live(second, "deployments").Object
	for _, want := range []struct {
		path  []any
		value any
	}{
		{[]any{"spec", "replicas"}, int64(3)},
		{[]any{"spec", "paused"}, true},
		{[]any{"spec", "minReadySeconds"}, nil},
		{[]any{"spec", "revisionHistoryLimit"}, int64(10)},
		{[]any{"spec", "strategy"}, map[string]any{"type": "Recreate"}},
		{[]any{"metadata", "labels", "tier"}, nil},
		{[]any{"metadata", "labels", "member"}, "m"},
		{pod("serviceAccountName"), nil},
		{pod("serviceAccount"), nil},
		{pod("nodeSelector"), nil},
		{pod("initContainers", "init", "image"), "init:1"},
		{pod("containers", "istio", "image"), "istio:1"},
		{pod("containers", "logger"), nil},
		{pod("containers", "app", "image"), "app:v2"},
		{pod("containers", "app", "args"), []any{"-b"}},
		{pod("containers", "app", "env", "M", "value"), "m"},
		{pod("containers", "app", "ports"), []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}},
		{pod("containers", "app", "resources", "limits"), map[string]any{"cpu": "1"}},
		{pod("volumes", "data"), map[string]any{"name": "data", "configMap": map[string]any{"name": "cm", "defaultMode": int64(420)}}},
	} {
		if diff := cmp.Diff(want.value, at(live, want.path...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", want.path, diff)
		}
	}
}

func TestServiceOnAPIServer(t *testing.T) {
	c, namespace := newCluster(t)
	service := func(kind string, ports ...any) *unstructured.Unstructured {
		return merge.Stamp(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web", "namespace": namespace},
			"spec": map[string]any{"type": kind, "selector": map[string]any{"app": "web"}, "ports": ports},
		}}, merge.Marks{})
	}
	port := func(name string, number int64) any { return map[string]any{"name": name, "port": number} }

	first := service("NodePort", port("http", 80), port("https", 443))
	c.create(first, "services")
	if c.update(first, "services") {
		t.Error("wrote right after the create")
	}
	before := c.live(first, "services").Object
	second := service("NodePort", port("http", 80), port("admin", 8080))
	if !c.update(second, "services") {
		t.Error("did not write the new port")
	}
	after := c.live(first, "services").Object
	if got := itemNames(at(after, "spec", "ports")); !cmp.Equal(got, []string{"http", "admin"}) {
		t.Errorf("ports are %v", got)
	}
	if nodePort := at(before, "spec", "ports", "http", "nodePort"); nodePort == nil || nodePort != at(after, "spec", "ports", "http", "nodePort") {
		t.Errorf("node port was %v and is %v", nodePort, at(after, "spec", "ports", "http", "nodePort"))
	}
	if at(before, "spec", "clusterIP") != at(after, "spec", "clusterIP") {
		t.Error("the cluster IP changed")
	}
	third := service("ClusterIP", port("http", 80))
	if !c.update(third, "services") || c.update(third, "services") {
		t.Error("changing the type must take one write")
	}
	if got := at(c.live(third, "services").Object, "spec", "ports", "http", "nodePort"); got != nil {
		t.Errorf("a ClusterIP service has node port %v", got)
	}
}

const gadgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.merge.example.com}
spec:
  group: merge.example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 3}
              colour: {type: string}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id]
                items: {type: object, required: [id], properties: {id: {type: string}, weight: {type: integer, default: 1}, extra: {type: string}}}
              flags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              anything: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func TestCustomResourceOnAPIServer(t *testing.T) {
	c, namespace := newCluster(t)
	c.create(object(t, gadgetDefinition), "customresourcedefinitions")
	gadget := func(spec string) *unstructured.Unstructured {
		obj := object(t, "{apiVersion: merge.example.com/v1, kind: Gadget, metadata: {name: g}, spec: "+spec+"}")
		obj.SetNamespace(namespace)
		return merge.Stamp(obj, merge.Marks{})
	}
	first := gadget("{colour: red, parts: [{id: a}, {id: b, extra: x}], flags: [p, q], anything: {list: [{k: v}], gone: 1}}")
	testenv.Eventually(t, "the custom resource to be served", func(ctx context.Context) (bool, error) {
		_, err := c.resource(first, "gadgets").Create(ctx, first, metav1.CreateOptions{FieldManager: merge.FieldManager})
		return err == nil, err
	})
	if c.update(first, "gadgets") {
		t.Error("wrote right after the create")
	}
	c.patch(first, "gadgets", "member", types.JSONPatchType, `[
		{"op":"add","path":"/spec/parts/-","value":{"id":"m"}},{"op":"add","path":"/spec/flags/-","value":"m"},{"op":"add","path":"/spec/anything/member","value":1}]`)
	if c.update(first, "gadgets") {
		t.Error("wrote because of additions of the member")
	}
	second := gadget("{parts: [{id: b}, {id: c, weight: 5}], flags: [q, r], anything: {list: []}}")
	if !c.update(second, "gadgets") || c.update(second, "gadgets") {
		t.Error("the new template must take one write")
	}
	want := object(t, "{kind: Gadget, spec: {size: 3, parts: [{id: b, weight: 1}, {id: m, weight: 1}, {id: c, weight: 5}], flags: [q, m, r], anything: {list: [], member: 1}}}")
	if diff := cmp.Diff(want.Object["spec"], c.live(second, "gadgets").Object["spec"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// manifests are of kinds with many defaults. They must not be written twice.
const manifests = `
configmaps: {apiVersion: v1, kind: ConfigMap, data: {k: v}, binaryData: {b: AAEC}}
---
secrets: {apiVersion: v1, kind: Secret, data: {k: dg==}}
---
serviceaccounts: {apiVersion: v1, kind: ServiceAccount, imagePullSecrets: [{name: s}]}
---
persistentvolumeclaims: {apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}}
---
services: {apiVersion: v1, kind: Service, spec: {clusterIP: None, ports: [{port: 53, protocol: UDP, name: u}, {port: 53, name: t}]}}
---
limitranges: {apiVersion: v1, kind: LimitRange, spec: {limits: [{type: Container, default: {cpu: 500m}}]}}
---
statefulsets: {apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: d, mountPath: /d}]}]}},
  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}
---
daemonsets: {apiVersion: apps/v1, kind: DaemonSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, tolerations: [{operator: Exists}],
  containers: [{name: c, image: i, ports: [{containerPort: 80}], livenessProbe: {httpGet: {path: /, port: 80}}, env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}]}],
  volumes: [{name: p, projected: {sources: [{serviceAccountToken: {path: t}}]}}, {name: h, hostPath: {path: /x}}]}}}}
---
jobs: {apiVersion: batch/v1, kind: Job, spec: {completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
cronjobs: {apiVersion: batch/v1, kind: CronJob, spec: {schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}}}}
---
ingresses: {apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: h.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}], tls: [{hosts: [h.example], secretName: t}]}}
---
networkpolicies: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}], ports: [{port: 80}]}]}}
---
poddisruptionbudgets: {apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}
---
horizontalpodautoscalers: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}, maxReplicas: 5, behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}}}
---
roles: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}
---
clusterroles: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cellplane-merge-test}, rules: [{nonResourceURLs: [/x], verbs: [get]}]}
---
namespaces: {apiVersion: v1, kind: Namespace, metadata: {name: cellplane-merge-test}}
`

// A manifest that has not changed is not written. One whose labels have changed is written once, and although that
// write leaves out all defaults, it changes nothing else: the generation stays.
func TestDefaultsOnAPIServer(t *testing.T) {
	c, namespace := newCluster(t)
	for document := range strings.SplitSeq(manifests, "---\n") {
		resource, text, _ := strings.Cut(strings.TrimSpace(document), ": ")
		t.Run(resource, func(t *testing.T) {
			c := cluster{t, c.client}
			base := object(t, text)
			if base.GetName() == "" {
				base.SetName("it")
				base.SetNamespace(namespace)
			}
			first := merge.Stamp(base, merge.Marks{})
			c.create(first, resource)
			if c.update(first, resource) {
				t.Error("wrote right after the create")
			}
			before := c.live(first, resource)

			base.SetLabels(map[string]string{"new": "label"})
			second := merge.Stamp(base, merge.Marks{})
			if !c.update(second, resource) {
				t.Error("did not write the new label")
			}
			if c.update(second, resource) {
				t.Error("wrote the new label twice")
			}
			after := c.live(first, resource)
			if before.GetGeneration() != after.GetGeneration() {
				t.Errorf("generation went from %d to %d", before.GetGeneration(), after.GetGeneration())
			}
			for _, obj := range []*unstructured.Unstructured{before, after} {
				unstructured.RemoveNestedField(obj.Object, "metadata")
			}
			if diff := cmp.Diff(before.Object, after.Object); diff != "" {
				t.Errorf("more than the label changed (-before +after):\n%s", diff)
			}
		})
	}
}
