package adopt

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// standIn does in one loop what Karmada's controllers do with Works: it carries the settings of policies to bindings and Works, renders changed
// templates, and replaces what differs in members. It does it also where nothing has changed, so that it fights with every other writer.
type standIn struct {
	client  client.Client
	members map[string]client.WithWatch
	ns      string
	works   []client.ObjectKey

	mu      sync.Mutex
	clashes []string        // objects of the federation that it has written to
	put     map[string]bool // objects that it has written to since it was last asked
}

// start runs it until the test ends or stop is called.
func (s *standIn) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := s.pass(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Errorf("the stand-in for Karmada: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func (s *standIn) pass(ctx context.Context) error {
	var policies policyv1alpha1.PropagationPolicyList
	var bindings workv1alpha2.ResourceBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := s.client.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			return err
		}
	}
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		for j := range policies.Items {
			if policy := &policies.Items[j]; policy.Name == binding.Annotations[names.PropagationPolicyNameAnnotation] {
				if err := s.detect(ctx, policy, binding); err != nil {
					return err
				}
			}
		}
		targets := binding.Spec.Clusters
		for j := range binding.Spec.RequiredBy {
			targets = append(targets, binding.Spec.RequiredBy[j].Clusters...)
		}
		for _, target := range targets {
			if err := s.sync(ctx, binding, target.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// detect carries the settings of a policy to a binding.
func (s *standIn) detect(ctx context.Context, policy *policyv1alpha1.PropagationPolicy, binding *workv1alpha2.ResourceBinding) error {
	before := binding.DeepCopy()
	binding.Spec.PreserveResourcesOnDeletion, binding.Spec.Suspension = policy.Spec.PreserveResourcesOnDeletion, nil
	if policy.Spec.Suspension != nil {
		binding.Spec.Suspension = &workv1alpha2.Suspension{Suspension: *policy.Spec.Suspension}
	}
	if apiequality.Semantic.DeepEqual(before.Spec, binding.Spec) {
		return nil
	}
	return s.client.Update(ctx, binding)
}

// sync carries the settings of a binding to a Work, and the Work to its cluster.
func (s *standIn) sync(ctx context.Context, binding *workv1alpha2.ResourceBinding, cluster string) error {
	ref := &binding.Spec.Resource
	work := &workv1alpha1.Work{}
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(ref.Kind, ref.Namespace, ref.Name)}, work); err != nil {
		return err
	}
	suspended := binding.Spec.Suspension != nil && ptr.Deref(binding.Spec.Suspension.Dispatching, false)
	if suspended != ptr.Deref(work.Spec.SuspendDispatching, false) || !ptr.Equal(binding.Spec.PreserveResourcesOnDeletion, work.Spec.PreserveResourcesOnDeletion) {
		work.Spec.SuspendDispatching, work.Spec.PreserveResourcesOnDeletion = &suspended, binding.Spec.PreserveResourcesOnDeletion
		if err := s.client.Update(ctx, work); err != nil {
			return err
		}
	}
	condition := metav1.Condition{Type: names.WorkDispatching, Status: metav1.ConditionTrue, Reason: "Dispatching"}
	if suspended {
		condition.Status, condition.Reason = metav1.ConditionFalse, "SuspendDispatching"
	}
	if meta.SetStatusCondition(&work.Status.Conditions, condition) {
		if err := s.client.Status().Update(ctx, work); err != nil {
			return err
		}
	}
	if suspended {
		return nil
	}
	return s.replace(ctx, work, cluster)
}

// replace replaces the object in the cluster. What is not marked as Karmada's is left alone.
func (s *standIn) replace(ctx context.Context, work *workv1alpha1.Work, cluster string) error {
	manifest := &unstructured.Unstructured{}
	if err := manifest.UnmarshalJSON(work.Spec.Workload.Manifests[0].Raw); err != nil {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifest.GroupVersionKind())
	if err := s.members[cluster].Get(ctx, client.ObjectKeyFromObject(manifest), live); err != nil {
		return err
	}
	if live.GetLabels()[names.ManagedLabel] != names.ManagedValue {
		return nil
	}
	manifest.SetResourceVersion(live.GetResourceVersion())
	labels, annotations := maps.Clone(live.GetLabels()), maps.Clone(live.GetAnnotations())
	maps.Copy(labels, manifest.GetLabels())
	maps.Copy(annotations, manifest.GetAnnotations())
	manifest.SetLabels(labels)
	manifest.SetAnnotations(annotations)
	if err := s.members[cluster].Update(ctx, manifest, client.FieldOwner("karmada-controller-manager")); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("%s %s in %s", manifest.GetKind(), manifest.GetName(), cluster)
	if live.GetLabels()[names.CellLabel] != "" {
		s.clashes = append(s.clashes, name)
	}
	s.put[name] = true
	return nil
}

// forget makes it count anew what it writes.
func (s *standIn) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = map[string]bool{}
}

// written returns how many objects it has written to.
func (s *standIn) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.put)
}

// place creates what Karmada has made of a template: the binding, the Works, and the objects in clusters. Change may differ by cluster.
func (s *standIn) place(t *testing.T, template *unstructured.Unstructured, policy string, spec workv1alpha2.ResourceBindingSpec, clusters map[string]int64, change func(cluster string, manifest *unstructured.Unstructured)) {
	t.Helper()
	kind, name := template.GetKind(), template.GetName()
	if err := s.client.Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	id := string(template.GetUID())
	spec.Resource = workv1alpha2.ObjectReference{APIVersion: template.GetAPIVersion(), Kind: kind, Namespace: s.ns, Name: name, UID: template.GetUID()}
	binding := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.ns, Name: names.BindingName(kind, name), Labels: map[string]string{names.ResourceBindingPermanentIDLabel: "rb-" + id}, Annotations: map[string]string{},
	}, Spec: spec}
	if policy != "" {
		binding.Annotations[names.PropagationPolicyNameAnnotation], binding.Annotations[names.PropagationPolicyNamespaceAnnotation] = policy, s.ns
	}
	if err := s.client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for cluster, replicas := range clusters {
		manifest := template.DeepCopy()
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(manifest.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(manifest.Object, "status")
		if replicas > 0 {
			if err := unstructured.SetNestedField(manifest.Object, replicas, "spec", "replicas"); err != nil {
				t.Fatal(err)
			}
		}
		if change != nil {
			change(cluster, manifest)
		}
		work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
			Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName(kind, s.ns, name),
			Labels: map[string]string{names.WorkPermanentIDLabel: "work-" + cluster + "-" + id, names.ResourceBindingPermanentIDLabel: "rb-" + id},
		}}
		labels := manifest.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[names.ManagedLabel] = names.ManagedValue
		maps.Copy(labels, work.Labels)
		manifest.SetLabels(labels)
		manifest.SetAnnotations(map[string]string{
			names.WorkNameAnnotation: work.Name, names.WorkNamespaceAnnotation: work.Namespace, names.ConflictResolutionAnnotation: "abort",
			names.ResourceBindingNameAnnotation: binding.Name, names.ResourceBindingNamespaceAnnotation: s.ns, names.TemplateUIDAnnotation: id,
		})
		raw, err := manifest.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		work.Spec.Workload.Manifests = make([]workv1alpha1.Manifest, 1)
		work.Spec.Workload.Manifests[0].Raw = raw
		if err := s.client.Create(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		s.works = append(s.works, client.ObjectKeyFromObject(work))
		if err := s.members[cluster].Create(t.Context(), manifest, client.FieldOwner("karmada-controller-manager")); err != nil {
			t.Fatal(err)
		}
	}
}
