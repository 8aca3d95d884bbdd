package cell

import (
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// A decoded object has its own copy of every string, and spare capacity in every slice. Most strings of a cached object
// are the same in thousands of others, so each is kept once.

// Shared returns the one copy of a string that all objects share. It is freed with the last of them.
func Shared(text string) string { return unique.Make(text).Value() }

func share[S ~string](texts ...*S) {
	for _, text := range texts {
		*text = S(Shared(string(*text)))
	}
}

func sharedKey(key Key) Key { return Key{Namespace: Shared(key.Namespace), Name: Shared(key.Name)} }

func sharedKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	share(&gvk.Group, &gvk.Version, &gvk.Kind)
	return gvk
}

func sharedTexts(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	kept := make([]string, len(texts))
	for i := range texts {
		kept[i] = Shared(texts[i])
	}
	return kept
}

// sharedEntries returns labels or annotations with shared strings. Values that are unique are not shared.
func sharedEntries(entries map[string]string) map[string]string {
	if len(entries) == 0 {
		return nil
	}
	kept := make(map[string]string, len(entries))
	for key, value := range entries {
		if key != names.ResourceBindingPermanentIDLabel && key != names.ClusterResourceBindingPermanentIDLabel {
			value = Shared(value)
		}
		kept[Shared(key)] = value
	}
	return kept
}

func sharedConditions(conditions []metav1.Condition) []metav1.Condition {
	kept := slices.Clip(slices.Clone(conditions))
	for i := range kept {
		share(&kept[i].Type, &kept[i].Reason, &kept[i].Message)
		share(&kept[i].Status)
	}
	return kept
}

// Conditions are conditions in memory: all but their times are the same in thousands of Works.
type Conditions []keptCondition

type keptCondition struct {
	text unique.Handle[conditionText]
	time int64 // in seconds, the precision of the API
}

type conditionText struct {
	kind, reason, message string
	status                metav1.ConditionStatus
	generation            int64
}

// CompactConditions returns conditions in their compact form.
func CompactConditions(conditions []metav1.Condition) Conditions {
	if len(conditions) == 0 {
		return nil
	}
	kept := make(Conditions, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		kept[i] = keptCondition{unique.Make(conditionText{c.Type, c.Reason, c.Message, c.Status, c.ObservedGeneration}), c.LastTransitionTime.Unix()}
	}
	return kept
}

// List returns the conditions. The caller may modify them.
func (c Conditions) List() []metav1.Condition {
	if len(c) == 0 {
		return nil
	}
	conditions := make([]metav1.Condition, len(c))
	for i := range c {
		text := c[i].text.Value()
		conditions[i] = metav1.Condition{Type: text.kind, Status: text.status, ObservedGeneration: text.generation, Reason: text.reason, Message: text.message, LastTransitionTime: metav1.Unix(c[i].time, 0)}
	}
	return conditions
}

// Find returns the condition of a type, nil if there is none.
func (c Conditions) Find(kind string) *metav1.Condition {
	return meta.FindStatusCondition(c.List(), kind)
}

// Status returns the shared copy of an object's status: many objects have the same.
func Status(raw []byte) []byte { return statuses.share(raw) }

var statuses pool

// pool keeps one copy of each of many byte slices. When it is full it starts over: it does not know which of them are
// still in use.
type pool struct {
	mu    sync.Mutex
	known map[string][]byte
}

const (
	poolSize  = 10000
	poolEntry = 512 // longer ones are rarely equal
)

func (p *pool) share(raw []byte) []byte {
	if len(raw) == 0 {
		return nil
	}
	if len(raw) > poolEntry {
		return slices.Clip(raw)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.known[string(raw)]; ok {
		return known
	}
	if p.known == nil || len(p.known) >= poolSize {
		p.known = map[string][]byte{}
	}
	kept := slices.Clip(slices.Clone(raw))
	p.known[string(kept)] = kept
	return kept
}

// compactBinding returns a compact copy of a binding.
func compactBinding(binding *workv1alpha2.ResourceBinding) *workv1alpha2.ResourceBinding {
	clone := *binding // a pointer into a list would keep the whole list in memory
	b := &clone
	b.ManagedFields = nil
	share(&b.Kind, &b.APIVersion, &b.Namespace, &b.Name)
	b.Labels, b.Annotations, b.Finalizers = sharedEntries(b.Labels), sharedEntries(b.Annotations), sharedTexts(b.Finalizers)
	b.OwnerReferences = slices.Clip(slices.Clone(b.OwnerReferences))
	for i := range b.OwnerReferences {
		owner := &b.OwnerReferences[i]
		share(&owner.APIVersion, &owner.Kind, &owner.Name)
		share(&owner.UID)
	}
	spec := &b.Spec
	share(&spec.Resource.APIVersion, &spec.Resource.Kind, &spec.Resource.Namespace, &spec.Resource.Name, &spec.SchedulerName)
	share(&spec.Resource.UID)
	share(&spec.ConflictResolution)
	spec.Clusters = slices.Clip(slices.Clone(spec.Clusters))
	for i := range spec.Clusters {
		share(&spec.Clusters[i].Name)
	}
	b.Status.Conditions = sharedConditions(b.Status.Conditions)
	b.Status.AggregatedStatus = slices.Clip(slices.Clone(b.Status.AggregatedStatus))
	for i := range b.Status.AggregatedStatus {
		item := &b.Status.AggregatedStatus[i]
		share(&item.ClusterName, &item.AppliedMessage)
		share(&item.Health)
		if item.Status != nil {
			item.Status = &runtime.RawExtension{Raw: Status(item.Status.Raw)}
		}
	}
	return b
}
