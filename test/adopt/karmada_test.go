package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/testenv"
)

const karmadaPolicies = `
- {apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: web}, spec: {
    propagateDeps: true, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}],
    placement: {clusterAffinity: {clusterNames: [member1, member2]}, replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted,
      weightPreference: {dynamicWeight: AvailableReplicas}}}}}
- {apiVersion: policy.karmada.io/v1alpha1, kind: PropagationPolicy, metadata: {name: settings}, spec: {
    resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {shared: "yes"}}}],
    placement: {clusterAffinity: {clusterNames: [member1, member2]}}}}
- {apiVersion: policy.karmada.io/v1alpha1, kind: OverridePolicy, metadata: {name: tags}, spec: {
    resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}],
    overrideRules: [{targetCluster: {clusterNames: [member2]}, overriders: {imageOverrider: [{component: Tag, operator: replace, value: "2"}]}}]}}
`

const karmadaWeb = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: web}}, spec: {replicas: 4, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "registry.example/web:1", envFrom: [{configMapRef: {name: needed}}]}]}}}}`

// fromKarmada is a Karmada control plane and a federation that takes its workloads over.
type fromKarmada struct {
	*world
	*standIn
	kubeconfig string
}

func object(t *testing.T, ns, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	obj.SetNamespace(ns)
	return obj
}

func newFromKarmada(w *world) *fromKarmada {
	w.Helper()
	plane := testenv.SharedAPIServer(w.T)
	ns := plane.Namespace(w.T)
	f := &fromKarmada{world: w, standIn: &standIn{client: newClient(w.T, plane.RESTConfig()), members: w.members, ns: ns, put: map[string]bool{}}}
	f.kubeconfig = filepath.Join(w.TempDir(), "karmada")
	if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"karmada": plane.RESTConfig()}, "karmada"), f.kubeconfig); err != nil {
		w.Fatal(err)
	}
	for _, cluster := range []string{"member1", "member2"} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ExecutionNamespace(cluster)}}
		if err := f.client.Create(w.Context(), space); err != nil && !apierrors.IsAlreadyExists(err) { // the API server is shared, and the names of Works differ
			w.Fatal(err)
		}
		if err := w.members[cluster].Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			w.Fatal(err)
		}
	}
	var policies []map[string]any
	if err := yaml.Unmarshal([]byte(karmadaPolicies), &policies); err != nil {
		w.Fatal(err)
	}
	for _, policy := range policies {
		obj := &unstructured.Unstructured{Object: policy}
		obj.SetNamespace(ns)
		if err := f.client.Create(w.Context(), obj); err != nil {
			w.Fatal(err)
		}
	}
	both := []workv1alpha2.TargetCluster{{Name: "member1", Replicas: 3}, {Name: "member2", Replicas: 1}}
	placed := func(policy string) *policyv1alpha1.Placement {
		p := &policyv1alpha1.PropagationPolicy{}
		if err := f.client.Get(w.Context(), client.ObjectKey{Namespace: ns, Name: policy}, p); err != nil {
			w.Fatal(err)
		}
		return &p.Spec.Placement
	}
	f.place(w.T, object(w.T, ns, karmadaWeb), "web", workv1alpha2.ResourceBindingSpec{Replicas: 4, Clusters: both, Placement: placed("web"), PropagateDeps: true, ReplicaRequirements: &workv1alpha2.ReplicaRequirements{}},
		map[string]int64{"member1": 3, "member2": 1}, func(cluster string, manifest *unstructured.Unstructured) {
			if cluster == "member2" {
				containers, _, _ := unstructured.NestedSlice(manifest.Object, "spec", "template", "spec", "containers")
				containers[0].(map[string]any)["image"] = "registry.example/web:2"
				_ = unstructured.SetNestedSlice(manifest.Object, containers, "spec", "template", "spec", "containers")
			}
		})
	without := []workv1alpha2.TargetCluster{{Name: "member1"}, {Name: "member2"}}
	for _, name := range []string{"one", "two"} {
		f.place(w.T, object(w.T, ns, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, labels: {shared: "yes"}}, data: {key: value}}`), "settings",
			workv1alpha2.ResourceBindingSpec{Clusters: without, Placement: placed("settings")}, map[string]int64{"member1": 0, "member2": 0}, nil)
	}
	f.place(w.T, object(w.T, ns, `{apiVersion: v1, kind: ConfigMap, metadata: {name: needed}, data: {key: value}}`), "",
		workv1alpha2.ResourceBindingSpec{RequiredBy: []workv1alpha2.BindingSnapshot{{Namespace: ns, Name: "web-deployment", Clusters: both}}}, map[string]int64{"member1": 0, "member2": 0}, nil)
	return f
}

// adopt runs a command and checks its exit code and that its output has all words.
func (f *fromKarmada) adopt(code int, words []string, args ...string) {
	f.Helper()
	output, got := f.try(append([]string{"adopt", "karmada", args[0], "--karmada-kubeconfig", f.kubeconfig, "-n", f.ns}, args[1:]...)...)
	line := strings.Join(strings.Fields(strings.ReplaceAll(output, f.ns, "NS")), " ")
	if got != code {
		f.Fatalf("adopt karmada %s ends with exit code %d, want %d:\n%s", strings.Join(args, " "), got, code, output)
	}
	for _, want := range words {
		if !strings.Contains(line, want) {
			f.Errorf("adopt karmada %s does not print %q:\n%s", strings.Join(args, " "), want, output)
		}
	}
}

// state returns what runs in the members and the specs there.
func (f *fromKarmada) state() string {
	f.Helper()
	var lines []string
	for _, cluster := range []string{"member1", "member2"} {
		var pods corev1.PodList
		var sets appsv1.ReplicaSetList
		var deployments appsv1.DeploymentList
		var maps corev1.ConfigMapList
		for _, list := range []client.ObjectList{&pods, &sets, &deployments, &maps} {
			if err := f.world.members[cluster].List(f.Context(), list, client.InNamespace(f.ns)); err != nil {
				f.Fatal(err)
			}
		}
		line := func(kind, name string, uid types.UID, content any) {
			text, err := json.Marshal(content)
			if err != nil {
				f.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %s %s %s %s", cluster, kind, name, uid, text))
		}
		for i := range pods.Items {
			line("pod", pods.Items[i].Name, pods.Items[i].UID, pods.Items[i].Spec)
		}
		for i := range sets.Items {
			line("replicaset", sets.Items[i].Name, sets.Items[i].UID, sets.Items[i].Spec)
		}
		for i := range deployments.Items {
			line("deployment", deployments.Items[i].Name, deployments.Items[i].UID, deployments.Items[i].Spec)
		}
		for i := range maps.Items {
			if maps.Items[i].Name == "kube-root-ca.crt" {
				continue // a controller of the member creates it at some time
			}
			line("configmap", maps.Items[i].Name, maps.Items[i].UID, maps.Items[i].Data)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (f *fromKarmada) wantState(when, before string) {
	f.Helper()
	if now := f.state(); now != before {
		f.Errorf("%s the members have\n%s\nand had\n%s", when, now, before)
	}
}

// Workloads go from Karmada to the federation one by one and all together, and back. A stand-in for Karmada's controllers rewrites everything that
// it may, all the time, and would be seen beside the federation.
func testKarmada(w *world) {
	f, t := newFromKarmada(w), w.T
	testenv.Eventually(t, "it runs", func(ctx context.Context) (bool, error) {
		for cluster, replicas := range map[string]int32{"member1": 3, "member2": 1} {
			d := &appsv1.Deployment{}
			if err := f.world.members[cluster].Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "web"}, d); err != nil || d.Status.ReadyReplicas != replicas {
				return false, err
			}
		}
		return true, nil
	})
	stop := f.start(t)
	before := f.state()

	f.adopt(0, []string{"Deployment NS/web web member1:3 member2:1 Karmada -", "ConfigMap NS/one settings member1 member2 Karmada -", "ConfigMap NS/needed - member1 member2 Karmada -"}, "plan")
	f.adopt(0, []string{"Deployment NS/web member1: no change member2: no change", "ConfigMap NS/needed member1: no change"}, "diff")
	f.adopt(2, []string{"ConfigMap NS/one: not taken over: policy settings of Karmada also places NS/two-configmap"}, "apply", "ConfigMap/one")
	f.adopt(1, []string{`does not place "Deployment/api"`}, "plan", "Deployment/api")
	f.wantState("after the rehearsal", before)

	// One workload is given back halfway, then it is taken over, then all are.
	f.killApply("web")
	f.wantState("after a hand-over that was killed", before)
	f.adopt(0, []string{"Deployment NS/web: given back"}, "undo")
	f.wantAsBefore()
	f.wantState("after the first way back", before)
	f.adopt(0, []string{"Deployment NS/web: taken over"}, "apply", "deployment/web")
	f.adopt(0, []string{"Deployment NS/web web member1:3 member2:1 the federation -", "ConfigMap NS/one settings member1 member2 Karmada -"}, "plan")
	f.adopt(0, []string{"Deployment NS/web: taken over already", "ConfigMap NS/one: taken over", "ConfigMap NS/needed: taken over"}, "apply")
	f.wantState("in the federation", before)

	// The federation manages it, and Karmada does not, although it would.
	f.edit("one", func(cm *corev1.ConfigMap) { cm.Data["key"] = "changed" })
	testenv.Eventually(t, "the federation dispatches a change", func(ctx context.Context) (bool, error) {
		cm := &corev1.ConfigMap{}
		err := f.world.members["member2"].Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "one"}, cm)
		return err == nil && cm.Data["key"] == "changed", err
	})
	f.adopt(2, []string{`ConfigMap NS/one: not given back: karmada would change it in cluster member1: data.key: "changed" -> "value"`}, "undo", "ConfigMap/one")
	f.edit("one", func(cm *corev1.ConfigMap) { cm.Data["key"] = "value" })
	testenv.Eventually(t, "it is changed back", func(ctx context.Context) (bool, error) {
		for _, cluster := range []string{"member1", "member2"} {
			cm := &corev1.ConfigMap{}
			if err := f.world.members[cluster].Get(ctx, client.ObjectKey{Namespace: f.ns, Name: "one"}, cm); err != nil || cm.Data["key"] != "value" {
				return false, err
			}
		}
		return true, nil
	})

	// A policy dispatches again when the last of its workloads is given back.
	f.adopt(0, []string{"ConfigMap NS/one: given back; Karmada dispatches it when all workloads of policy settings are given back"}, "undo", "ConfigMap/one")
	f.adopt(0, []string{"ConfigMap NS/two: given back", "Deployment NS/web: given back", "ConfigMap NS/needed: given back"}, "undo")
	f.wantState("in Karmada again", before)
	f.wantAsBefore()
	stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.clashes) > 0 {
		t.Errorf("Karmada has written to objects of the federation: %v", f.clashes)
	}
}

// killApply kills a command that takes a Deployment over, as soon as its template is in the federation.
func (f *fromKarmada) killApply(name string) {
	f.Helper()
	cmd := f.command(f.Context(), "adopt", "karmada", "apply", "--karmada-kubeconfig", f.kubeconfig, "-n", f.ns, "Deployment/"+name)
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	testenv.Eventually(f.T, "the template is in the federation", func(ctx context.Context) (bool, error) {
		err := f.federation.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: name}, &appsv1.Deployment{})
		return err == nil, err
	})
	if err := cmd.Process.Kill(); err != nil {
		f.Fatal(err)
	}
	_ = cmd.Wait()
}

// edit changes a template in the federation.
func (f *fromKarmada) edit(name string, change func(*corev1.ConfigMap)) {
	f.Helper()
	testenv.Eventually(f.T, "the template is changed", func(ctx context.Context) (bool, error) {
		cm := &corev1.ConfigMap{}
		if err := f.federation.Get(ctx, client.ObjectKey{Namespace: f.ns, Name: name}, cm); err != nil {
			return false, err
		}
		change(cm)
		err := f.federation.Update(ctx, cm)
		return err == nil, err
	})
}

// wantAsBefore checks that nothing of the hand-over is left in Karmada, and that Karmada dispatches everything again.
func (f *fromKarmada) wantAsBefore() {
	f.Helper()
	testenv.Eventually(f.T, "Karmada dispatches everything again", func(ctx context.Context) (bool, error) {
		var bindings workv1alpha2.ResourceBindingList
		var policies policyv1alpha1.PropagationPolicyList
		for _, key := range f.works {
			work := &workv1alpha1.Work{}
			if err := f.client.Get(ctx, key, work); err != nil {
				return false, err
			}
			if ptr.Deref(work.Spec.SuspendDispatching, false) || work.Spec.PreserveResourcesOnDeletion != nil {
				return false, fmt.Errorf("work %s is suspended", key)
			}
		}
		for _, list := range []client.ObjectList{&bindings, &policies} {
			if err := f.client.List(ctx, list, client.InNamespace(f.ns)); err != nil {
				return false, err
			}
		}
		for i := range policies.Items {
			if p := &policies.Items[i]; p.Spec.Suspension != nil || p.Spec.PreserveResourcesOnDeletion != nil || p.Annotations[names.HandedOverAnnotation] != "" {
				return false, fmt.Errorf("policy %s is %+v", p.Name, p.Spec)
			}
		}
		for i := range bindings.Items {
			if b := &bindings.Items[i]; b.Annotations[names.HandedOverAnnotation] != "" || b.Spec.Suspension != nil {
				return false, fmt.Errorf("binding %s is %+v", b.Name, b.Spec)
			}
		}
		return true, nil
	})
	f.forget()
	testenv.Eventually(f.T, "Karmada writes to all objects", func(context.Context) (bool, error) { return f.written() == len(f.works), nil })
}
