package cronscaler

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

func keyOf(of *autoscalingv1alpha1.CronFederatedHPA) cell.Key {
	return cell.Key{Namespace: of.Namespace, Name: of.Name}
}

func (r *Controller) get(key cell.Key) *autoscalingv1alpha1.CronFederatedHPA {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[key]
}

// put stores what was written, so that it is known before the watch brings it.
func (r *Controller) put(of *autoscalingv1alpha1.CronFederatedHPA) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := keyOf(of); r.known[key] != nil {
		r.known[key] = of
	}
}

// Set implements fleet.Sink.
func (r *Controller) Set(obj runtime.Object) {
	of, ok := obj.(*autoscalingv1alpha1.CronFederatedHPA)
	if !ok {
		return
	}
	key := keyOf(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed.Saw(key)
	if known := r.known[key]; known != nil && known.UID == of.UID && cell.Version(known.ResourceVersion) >= cell.Version(of.ResourceVersion) {
		return // the answer to a write came before
	}
	r.known[key] = of
	r.queue.AddNow(key)
}

// Unset implements fleet.Sink.
func (r *Controller) Unset(obj runtime.Object) {
	if of, ok := obj.(*autoscalingv1alpha1.CronFederatedHPA); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.known, keyOf(of))
	}
}

// Relist implements fleet.Sink.
func (r *Controller) Relist() func(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed.Begin()
	return func(string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, key := range r.listed.End(maps.Keys(r.known)) {
			delete(r.known, key)
		}
	}
}
