package dependencies

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// attachments caches the bindings in other control planes that this cell attached. The cache only saves requests: a
// binding is read again before it is changed.
type attachments struct {
	lost func(*workv1alpha2.ResourceBinding)

	mu      sync.Mutex
	of      map[cell.Key]*workv1alpha2.ResourceBinding
	byLabel map[string]map[cell.Key]struct{}
	listed  map[bool]bool // initial list complete, by clusterScoped
}

func newAttachments() *attachments {
	return &attachments{
		of: map[cell.Key]*workv1alpha2.ResourceBinding{}, byLabel: map[string]map[cell.Key]struct{}{}, listed: map[bool]bool{},
		lost: func(*workv1alpha2.ResourceBinding) {},
	}
}

// get returns a cached binding, or nil.
func (a *attachments) get(key cell.Key) *workv1alpha2.ResourceBinding {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[key]
}

// labelled returns the cached bindings with a label, and whether the cache is complete.
func (a *attachments) labelled(label string) ([]*workv1alpha2.ResourceBinding, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*workv1alpha2.ResourceBinding
	for key := range a.byLabel[label] {
		found = append(found, a.of[key])
	}
	return found, a.listed[false] && a.listed[true]
}

// set stores a binding; nil removes it.
func (a *attachments) set(key cell.Key, now *workv1alpha2.ResourceBinding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.of[key]
	if old != nil {
		for _, label := range dependedBy(old) {
			delete(a.byLabel[label], key)
			if len(a.byLabel[label]) == 0 {
				delete(a.byLabel, label)
			}
		}
	}
	if now == nil {
		delete(a.of, key)
		if old != nil {
			a.lost(old)
		}
		return
	}
	a.of[key] = now
	for _, label := range dependedBy(now) {
		if a.byLabel[label] == nil {
			a.byLabel[label] = map[cell.Key]struct{}{}
		}
		a.byLabel[label][key] = struct{}{}
	}
}

// sink returns the sink for namespaced or for cluster-scoped bindings.
func (a *attachments) sink(clusterScoped bool) attachmentSink {
	return attachmentSink{attachments: a, clusterScoped: clusterScoped, seen: &seen{}}
}

// attachmentSink implements fleet.Sink.
type attachmentSink struct {
	*attachments
	clusterScoped bool
	seen          *seen
}

// seen holds the keys of the list in progress.
type seen struct{ keys map[cell.Key]bool }

// Set implements fleet.Sink.
func (s attachmentSink) Set(obj runtime.Object) {
	binding := bindingOf(obj)
	if binding == nil {
		return
	}
	if s.seen.keys != nil {
		s.seen.keys[keyOf(binding)] = true
	}
	s.set(keyOf(binding), outlineOf(binding))
}

// Unset implements fleet.Sink. The binding was deleted or lost the label of this cell.
func (s attachmentSink) Unset(obj runtime.Object) {
	if binding := bindingOf(obj); binding != nil {
		s.set(keyOf(binding), nil)
	}
}

// Relist starts a list. The returned function ends it and removes bindings that the list did not contain.
func (s attachmentSink) Relist() (done func(resourceVersion string)) {
	s.seen.keys = map[cell.Key]bool{}
	return func(string) {
		for _, key := range s.missing() {
			s.set(key, nil)
		}
		s.seen.keys = nil
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listed[s.clusterScoped] = true
	}
}

func (s attachmentSink) missing() []cell.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []cell.Key
	for key := range s.of {
		if (key.Namespace == "") == s.clusterScoped && !s.seen.keys[key] {
			gone = append(gone, key)
		}
	}
	return gone
}

func bindingOf(obj runtime.Object) *workv1alpha2.ResourceBinding {
	switch binding := obj.(type) {
	case *workv1alpha2.ResourceBinding:
		return binding
	case *workv1alpha2.ClusterResourceBinding:
		return (*workv1alpha2.ResourceBinding)(binding)
	default:
		return nil
	}
}

// outlineOf copies the fields of a binding that this package uses.
func outlineOf(binding *workv1alpha2.ResourceBinding) *workv1alpha2.ResourceBinding {
	outline := &workv1alpha2.ResourceBinding{}
	outline.Namespace, outline.Name, outline.UID = binding.Namespace, binding.Name, binding.UID
	outline.DeletionTimestamp, outline.Labels = binding.DeletionTimestamp, binding.Labels
	if binding.Spec.Placement != nil {
		outline.Spec.Placement = &policyv1alpha1.Placement{} // only its presence matters
	}
	outline.Spec.Resource, outline.Spec.RequiredBy = binding.Spec.Resource, binding.Spec.RequiredBy
	outline.Spec.ConflictResolution, outline.Spec.PreserveResourcesOnDeletion = binding.Spec.ConflictResolution, binding.Spec.PreserveResourcesOnDeletion
	return outline
}
