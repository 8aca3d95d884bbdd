package autoscaler

import (
	"cmp"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/fleet"
)

// scalers are the autoscalers of the federation, by target.
type scalers struct {
	changed func(target)

	mu       sync.Mutex
	byTarget map[target]map[id]*scaler
	targets  map[id]target
}

func newScalers(changed func(target)) *scalers {
	return &scalers{changed: changed, byTarget: map[target]map[id]*scaler{}, targets: map[id]target{}}
}

// of returns the autoscalers of a target, ordered by kind and name.
func (s *scalers) of(t target) []*scaler {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*scaler
	for _, a := range s.byTarget[t] {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *scaler) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return all
}

// put stores an autoscaler; nil removes it. A change of the status alone is no event: who wrote it knows.
func (s *scalers) put(key id, now *scaler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, known := s.targets[key]
	before := s.byTarget[former][key]
	if known && (now == nil || now.target != former) {
		delete(s.byTarget[former], key)
		delete(s.targets, key)
		if len(s.byTarget[former]) == 0 {
			delete(s.byTarget, former)
		}
		s.changed(former)
	}
	if now == nil {
		return
	}
	if s.byTarget[now.target] == nil {
		s.byTarget[now.target] = map[id]*scaler{}
	}
	s.byTarget[now.target][key], s.targets[key] = now, now.target
	if before == nil || before.uid != now.uid || !apiequality.Semantic.DeepEqual(before.spec, now.spec) {
		s.changed(now.target)
	}
}

// sink returns a fleet.Sink for the autoscalers of a kind.
func (s *scalers) sink(kind schema.GroupVersionKind) *scalerSink {
	return &scalerSink{of: s, kind: kind, synced: make(chan struct{})}
}

type scalerSink struct {
	of     *scalers
	kind   schema.GroupVersionKind
	listed fleet.Listing[id]
	once   sync.Once
	synced chan struct{}
}

// Set implements fleet.Sink.
func (k *scalerSink) Set(obj runtime.Object) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	key := id{k.kind, keyOf(object)}
	k.listed.Saw(key)
	now, ok := scalerOf(obj)
	if !ok {
		now = nil
	}
	k.of.put(key, now)
}

// Unset implements fleet.Sink.
func (k *scalerSink) Unset(obj runtime.Object) {
	if object, ok := obj.(metav1.Object); ok {
		k.of.put(id{k.kind, keyOf(object)}, nil)
	}
}

// Relist implements fleet.Sink.
func (k *scalerSink) Relist() func(string) {
	k.listed.Begin()
	return func(string) {
		for _, key := range k.listed.End(slices.Values(k.of.ids(k.kind))) {
			k.of.put(key, nil)
		}
		k.once.Do(func() { close(k.synced) })
	}
}

func (s *scalers) ids(kind schema.GroupVersionKind) []id {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []id
	for key := range s.targets {
		if key.GroupVersionKind == kind {
			all = append(all, key)
		}
	}
	return all
}
