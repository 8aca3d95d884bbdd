package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/release"
	"github.com/cellplane/cellplane/internal/render"
)

// releasedKinds are the kinds of the test, with their resources.
var releasedKinds = map[string]schema.GroupVersionResource{
	"ConfigMap":  corev1.SchemeGroupVersion.WithResource("configmaps"),
	"Service":    corev1.SchemeGroupVersion.WithResource("services"),
	"Deployment": appsv1.SchemeGroupVersion.WithResource("deployments"),
}

// newRelease returns the federation to release from.
func newRelease(t *testing.T) *release.Federation {
	t.Helper()
	interpreters, merger := interpreter.New(interpreter.Options{}), merge.New()
	f := &release.Federation{Client: cell, Members: map[string]dynamic.Interface{}, Interpreter: interpreters}
	f.Compare = func(ctx context.Context, _ string, live, manifest *unstructured.Unstructured) (string, error) {
		merged, _, err := render.Merge(ctx, interpreters, merger, live, manifest)
		if err != nil {
			return "", err
		}
		if changes := difference.Between(live, merged); len(changes) > 0 {
			return changes[0].Field, nil
		}
		return "", nil
	}
	var err error
	if f.Templates, err = dynamic.NewForConfig(cellConfig); err != nil {
		t.Fatal(err)
	}
	for _, plane := range federation.Members {
		config, err := plane.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		if f.Members[plane.Name()], err = dynamic.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// adoptAll adopts the objects of both members. Their policies would let the engine delete them with their templates.
func adoptAll(t *testing.T, ns string) {
	t.Helper()
	objects := map[string]map[string]*unstructured.Unstructured{}
	for cluster, member := range members {
		objects[cluster] = adopted(t, member, ns)
	}
	planner := newPlanner(t)
	for _, kind := range adoptedKinds {
		item, err := planner.Plan(t.Context(), groupOf(kind.GroupVersionKind, objects))
		if err != nil || len(item.Obstacles) > 0 {
			t.Fatalf("%s: err %v, obstacles %v", kind.Kind, err, item.Obstacles)
		}
		item.Policy.Spec.Suspension, item.Policy.Spec.PreserveResourcesOnDeletion = nil, nil
		if item.Override != nil {
			create(t, item.Override)
		}
		create(t, item.Policy, item.Template)
	}
	for cluster, member := range members {
		for _, kind := range adoptedKinds {
			until(t, "the federation has taken over the "+kind.Kind+" in "+cluster, member, reference(objects[cluster][kind.Kind]), func(obj *unstructured.Unstructured) bool {
				return obj.GetLabels()[names.ManagedLabel] == names.ManagedValue
			})
		}
	}
}

// users returns what users see of an object in a member.
func users(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	delete(obj.Object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	return obj.Object
}

var errKilled = errors.New("killed")

// P32: what was adopted is released, in one cluster and in all, by a command that is killed after each of its writes. Nothing is deleted or restarted in
// a member, although the policies do not preserve it, and nothing of the federation is left there.
func TestRelease(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	running := map[string]int32{"member1": 2, "member2": 3}
	before, watches := map[string]map[string]*unstructured.Unstructured{}, map[string]*podWatch{}
	for cluster, replicas := range running {
		d := deployment(ns, "web", replicas)
		d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:" + cluster
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
		createIn(t, members[cluster], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, configMap(ns, "settings", map[string]string{"cluster": cluster}), d, s)
	}
	for cluster, replicas := range running {
		until(t, "it runs in "+cluster, members[cluster], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
			return d.Status.ReadyReplicas == replicas && d.Status.ObservedGeneration == d.Generation
		})
		before[cluster] = adopted(t, members[cluster], ns)
		watches[cluster] = watchPods(t, members[cluster], ns)
	}
	f := newRelease(t)

	// Of all clusters.
	adoptAll(t, ns)
	for cluster, member := range members {
		text, err := json.Marshal(adopted(t, member, ns)["Deployment"].Object["spec"])
		if err != nil || strings.Contains(string(text), "karmada.io/") || strings.Contains(string(text), "cellplane.io/") {
			t.Errorf("the pod template in %s has marks of the federation: %s, %v", cluster, text, err)
		}
	}
	for _, kind := range adoptedKinds {
		writes := interrupted(t, f, func(ctx context.Context, template *unstructured.Unstructured) error {
			return f.Everywhere(ctx, releasedKinds[kind.Kind], template)
		}, ns, kind.Kind, kind.name)
		if want := []string{"marked the PropagationPolicy", "marked the OverridePolicy", "marked the template", "deleted the template"}; kind.Kind != "Service" && !slices.Equal(writes[:4], want) {
			t.Errorf("the first writes for the %s are %q, want %q", kind.Kind, writes[:4], want)
		}
	}
	checkReleased(t, ns, before, slices.Sorted(maps.Keys(running)))
	left := []ctrlclient.ObjectList{&policyv1alpha1.PropagationPolicyList{}, &policyv1alpha1.OverridePolicyList{}}
	for _, list := range left {
		if err := cell.List(t.Context(), list, ctrlclient.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	if policies, overrides := left[0].(*policyv1alpha1.PropagationPolicyList).Items, left[1].(*policyv1alpha1.OverridePolicyList).Items; len(policies)+len(overrides) > 0 {
		t.Errorf("policies are left: %v, %v", policies, overrides)
	}

	// Of one, after it was adopted again.
	adoptAll(t, ns)
	for _, kind := range adoptedKinds {
		interrupted(t, f, func(ctx context.Context, template *unstructured.Unstructured) error {
			return f.From(ctx, releasedKinds[kind.Kind], template, "member1")
		}, ns, kind.Kind, kind.name)
	}
	checkReleased(t, ns, before, []string{"member1"})
	until(t, "the other cluster has its replicas", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == 3 && d.Annotations[names.ReleaseAnnotation] == "" && d.Status.ReadyReplicas == 3
	})
	edit(t, cell, configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"new": "label"} })
	until(t, "the federation manages the other cluster", members["member2"], configMapRef(ns, "settings"), func(cm *corev1.ConfigMap) bool { return cm.Labels["new"] == "label" })
	for cluster, w := range watches {
		w.check(t, cluster, running[cluster])
	}
}

// interrupted runs a release that is killed after each of its writes, again and again until it writes nothing more. It returns what was written.
func interrupted(t *testing.T, f *release.Federation, run func(context.Context, *unstructured.Unstructured) error, ns, kind, name string) []string {
	t.Helper()
	var writes []string
	f.Wrote = func(what string) error {
		writes = append(writes, what)
		return errKilled
	}
	for len(writes) < 30 {
		template, err := f.Templates.Resource(releasedKinds[kind]).Namespace(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			err = run(t.Context(), template)
		} else if apierrors.IsNotFound(err) {
			for cluster := range members { // as the run would have waited
				untilGone(t, "the Work is gone", cell, workRef(cluster, kind, ns, name))
			}
			err = f.Leftovers(t.Context(), ns)
		}
		if err == nil {
			return writes
		}
		if !errors.Is(err, errKilled) {
			t.Fatalf("releasing the %s: %v after %q", kind, err, writes)
		}
	}
	t.Fatalf("releasing the %s does not end: %q", kind, writes)
	return nil
}

// checkReleased compares what clusters have with what they had before they were adopted.
func checkReleased(t *testing.T, ns string, before map[string]map[string]*unstructured.Unstructured, clusters []string) {
	t.Helper()
	for _, cluster := range clusters {
		now := adopted(t, members[cluster], ns)
		for _, kind := range adoptedKinds {
			missing(t, "a Work", cell, &workv1alpha1.Work{ObjectMeta: workRef(cluster, kind.Kind, ns, kind.name).ObjectMeta})
			if diff := cmp.Diff(users(before[cluster][kind.Kind]), users(now[kind.Kind])); diff != "" {
				t.Errorf("%s in %s is not as before it was adopted (-before +now):\n%s", kind.Kind, cluster, diff)
			}
			for _, entry := range now[kind.Kind].GetManagedFields() {
				if entry.Manager == merge.FieldManager {
					t.Errorf("%s in %s has managed fields of the federation: %s", kind.Kind, cluster, entry.FieldsV1)
				}
			}
		}
	}
}
