package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// adoptionWorld is a federation without engines, with two members in which the same namespace has workloads.
type adoptionWorld struct {
	*testing.T
	ns         string
	kubeconfig string
	planes     *local.Federation
	federation client.Client
	members    map[string]client.Client
}

func newAdoptionWorld(t *testing.T) *adoptionWorld {
	t.Helper()
	federation := testenv.StartFederation(t, local.Spec{Cells: 1})
	hubConfig, err := federation.Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	hub := []string{"--kubeconfig", writeKubeconfig(t, "hub", hubConfig), "--context", "hub"}
	w := &adoptionWorld{T: t, planes: federation, ns: "adopt-" + rand.String(5), members: map[string]client.Client{}}
	for i, name := range []string{"left", "right"} {
		config := testenv.SharedMembers(t)[i].RESTConfig()
		args := slices.Concat([]string{name, "--member-kubeconfig", writeKubeconfig(t, "admin", config), "--member-context", "admin", "--cells", "cell-a"}, hub)
		if output, err := run(t, newJoin(), args...); err != nil {
			t.Fatalf("joining: %q, %v", output, err)
		}
		t.Cleanup(func() { _, _ = run(t, newUnjoin(), slices.Concat([]string{name, "--force"}, hub)...) })
		w.members[name] = w.connect(config)
	}
	gateway := gatewaytest.Start(t, federation, nil)
	w.federation, w.kubeconfig = w.connect(gateway.Config(t)), gateway.Kubeconfig(t)
	proxied := rest.CopyConfig(gateway.Config(t))
	proxied.Host += "/apis/cluster.karmada.io/v1alpha1/clusters/right/proxy"
	testenv.Eventually(t, "the gateway reaches the members", func(ctx context.Context) (bool, error) {
		reader, err := client.New(proxied, client.Options{})
		if err != nil {
			return false, err
		}
		err = reader.List(ctx, &corev1.NamespaceList{})
		return err == nil, err
	})
	return w
}

func (w *adoptionWorld) connect(config *rest.Config) client.Client {
	w.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		w.Fatal(err)
	}
	connected, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		w.Fatal(err)
	}
	return connected
}

// populate creates the workloads of a member.
func (w *adoptionWorld) populate(cluster string, replicas int32) {
	w.Helper()
	deployment := func(name, selected string, replicas int32) *appsv1.Deployment {
		pod := map[string]string{"app": name, "selected": selected}
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name}}, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: pod},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "registry.example/app:" + cluster, Env: []corev1.EnvVar{{Name: "CLUSTER", Value: cluster}},
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			}}}},
		}}
	}
	role := func(name string, resources ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + w.ns, Labels: map[string]string{"of": w.ns}}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: resources},
		}}
	}
	clusterWide := []client.Object{
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high-" + w.ns}, Value: replicas}, role("same", "pods"), role("other", "pods", cluster),
	}
	for _, obj := range clusterWide {
		if err := w.members[cluster].Create(w.Context(), obj); err != nil {
			w.Fatalf("creating %T %s in %s: %v", obj, obj.GetName(), cluster, err)
		}
		w.Cleanup(func() { _ = w.members[cluster].Delete(context.Background(), obj) })
	}
	scaled := deployment("scaled", "scaled", 1)
	scaled.Spec.Template.Spec.PriorityClassName = "high-" + w.ns
	scaled.Spec.Template.Spec.Containers[0].EnvFrom = nil
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "settings"}, Data: map[string]string{"cluster": cluster}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "unused"}},
		deployment("web", "web", replicas), deployment("api", cluster, 1), scaled,
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "scaled"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "scaled"},
		}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "front"}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		}},
	}
	for _, obj := range objects {
		if err := w.members[cluster].Create(w.Context(), obj); err != nil {
			w.Fatalf("creating %T %s in %s: %v", obj, obj.GetName(), cluster, err)
		}
	}
	w.Cleanup(func() { _ = w.members[cluster].Delete(context.Background(), objects[0]) })
}

// adopt runs a command and returns its output and exit code.
func (w *adoptionWorld) adopt(args ...string) (string, int) {
	w.Helper()
	output, err := run(w.T, newAdopt(), append(args, "-n", w.ns, "--kubeconfig", w.kubeconfig)...)
	var exit exitError
	switch {
	case errors.As(err, &exit):
		return output, exit.code
	case err != nil:
		return err.Error(), 1
	default:
		return output, 0
	}
}

// wants runs a command and checks its exit code and that its output has all lines, with any number of spaces between columns.
func (w *adoptionWorld) wants(code int, lines []string, args ...string) string {
	w.Helper()
	output, got := w.adopt(args...)
	words := strings.Join(strings.Fields(strings.ReplaceAll(output, w.ns, "NS")), " ")
	if got != code {
		w.Errorf("adopt %s ends with exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, output)
	}
	for _, line := range lines {
		if !strings.Contains(words, line) {
			w.Errorf("adopt %s does not print %q:\n%s", strings.Join(args, " "), line, output)
		}
	}
	return output
}

// The commands read members through the gateway, and write nothing before the engine's result is known.
func TestAdopt(t *testing.T) {
	w := newAdoptionWorld(t)
	w.populate("left", 2)
	w.populate("right", 3)

	table := w.wants(0, []string{
		"Deployment NS/web left:2 right:3 spec.template.spec.containers[c].env[CLUSTER].value, spec.template.spec.containers[c].image -",
		"Deployment NS/api left:1 right:1",
		"spec.selector.matchLabels.selected differs between clusters",
		"HorizontalPodAutoscaler NS/scaled left right - -",
		"Service NS/front left right",
		"ConfigMap NS/settings left right data.cluster -",
		"PriorityClass high-NS left right value not adopted, and it is not the same in all clusters",
		"5 can be adopted, 1 cannot, 0 are managed already",
	}, "plan")
	w.testClusterScoped()
	if strings.Contains(table, "unused") {
		t.Errorf("the plan has a ConfigMap that nothing refers to:\n%s", table)
	}
	w.wants(0, []string{"Deployment NS/web left:2 - -", "Service NS/front left", "ConfigMap NS/settings left - -", "3 can be adopted, 0 cannot"}, "plan", "--clusters", "left", "-l", "app=web")
	w.wants(1, []string{`there is no cluster "middle" in the federation; it has left, right`}, "plan", "--clusters", "middle")
	w.wants(1, []string{"--output must be table or yaml"}, "plan", "-o", "json")
	w.wants(1, []string{"--selector"}, "plan", "-l", "a in")
	w.testManifests()

	t.Run("Views", func(t *testing.T) { testViews(t, w) })

	clean := []string{"Deployment NS/web left: no change right: no change", "Service NS/front left: no change right: no change", "ConfigMap NS/settings left: no change right: no change"}
	w.wants(0, clean, "diff", "-l", "app=web")
	w.wants(2, []string{"Deployment NS/api cannot be adopted: spec.selector.matchLabels.selected differs"}, "diff")
	gatewaytest.Namespace(t, w.planes, w.ns)
	w.wants(0, clean, "diff", "-l", "app=web") // now with a dry run of the template, too
	w.testOverridden()

	// Without an engine nothing is dispatched, however often it is tried.
	for range 2 {
		w.wants(2, []string{"Deployment NS/web: not adopted: the engine has not rendered it for cluster left; dispatching is still suspended by PropagationPolicy web-deployment"},
			"apply", "-l", "app=web", "--timeout", "1s")
	}
	policy := &policyv1alpha1.PropagationPolicy{}
	if err := w.federation.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "web-deployment"}, policy); err != nil || policy.Spec.Suspension == nil {
		t.Errorf("the policy is %+v: %v", policy.Spec, err)
	}
	for name, member := range w.members {
		d := &appsv1.Deployment{}
		if err := member.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "web"}, d); err != nil || d.Generation != 1 || d.Labels[names.ManagedLabel] != "" {
			t.Errorf("%s has generation %d with labels %v: %v", name, d.Generation, d.Labels, err)
		}
	}
	w.wants(0, clean, "diff", "-l", "app=web") // the template exists
}

// testClusterScoped plans cluster-scoped kinds, if they are asked for. What every cluster makes for itself is not among them.
func (w *adoptionWorld) testClusterScoped() {
	w.Helper()
	table := w.wants(0, []string{
		"ClusterRole same-NS left right - -", "ClusterRole other-NS left right rules[0].resources rules[0].resources differs between clusters; a cluster-scoped object must be the same in all of them",
		"1 can be adopted, 1 cannot",
	}, "plan", "--resource", "clusterroles", "-l", "of="+w.ns)
	if strings.Contains(table, "PriorityClass") {
		w.Errorf("the plan has what none of its objects refers to:\n%s", table)
	}
	if all := w.wants(0, []string{"ClusterRole same-NS"}, "plan", "--resource", "clusterroles"); strings.Contains(all, "ClusterRole view") || strings.Contains(all, "system:") {
		w.Errorf("the plan has ClusterRoles that every cluster has:\n%s", all)
	}
	w.wants(0, []string{"kind: ClusterPropagationPolicy", "name: same-NS-clusterrole"}, "plan", "--resource", "clusterroles", "-l", "of="+w.ns, "-o", "yaml")
	w.wants(1, []string{"nodes belong to the clusters themselves"}, "plan", "--resource", "nodes")
}

// testManifests checks the order of the manifests. What cannot be adopted is a comment.
func (w *adoptionWorld) testManifests() {
	w.Helper()
	text := w.wants(0, []string{"# Deployment NS/api cannot be adopted: spec.selector"}, "plan", "-o", "yaml")
	text, warning, _ := strings.Cut(text, "Groups that cannot be adopted: ") // on standard error
	if !strings.HasPrefix(warning, "1.") {
		w.Errorf("the warning is %q", warning)
	}
	var got []string
	decoder := yamlutil.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.Fatal(err)
		}
		if len(obj.Object) > 0 {
			got = append(got, obj.GetKind()+" "+obj.GetName())
		}
		if obj.GetKind() == "Deployment" && (obj.GetName() == "scaled") != (obj.GetLabels()[names.RetainReplicasLabel] == "true") {
			w.Errorf("the template %s has the labels %v", obj.GetName(), obj.GetLabels())
		}
	}
	want := []string{
		"Namespace " + w.ns,
		"OverridePolicy scaled-deployment", "PropagationPolicy scaled-deployment", "Deployment scaled",
		"OverridePolicy web-deployment", "PropagationPolicy web-deployment", "Deployment web",
		"OverridePolicy front-service", "PropagationPolicy front-service", "Service front",
		"PropagationPolicy scaled-horizontalpodautoscaler", "HorizontalPodAutoscaler scaled",
		"OverridePolicy settings-configmap", "PropagationPolicy settings-configmap", "ConfigMap settings",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("the manifests are %v, want %v", got, want)
	}
}

// testOverridden checks that an override of the federation that would change something is found.
func (w *adoptionWorld) testOverridden() {
	w.Helper()
	override := &policyv1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "all"}, Spec: policyv1alpha1.OverrideSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		OverrideRules: []policyv1alpha1.RuleWithCluster{{Overriders: policyv1alpha1.Overriders{
			LabelsOverrider: []policyv1alpha1.LabelAnnotationOverrider{{Operator: policyv1alpha1.OverriderOpAdd, Value: map[string]string{"colour": "red"}}},
		}}},
	}}
	if err := w.federation.Create(w.Context(), override); err != nil {
		w.Fatal(err)
	}
	w.wants(2, []string{"Deployment NS/web cannot be adopted: metadata.labels.colour in cluster left would change"}, "diff", "-l", "app=web")
	if err := w.federation.Delete(w.Context(), override); err != nil {
		w.Fatal(err)
	}
}
