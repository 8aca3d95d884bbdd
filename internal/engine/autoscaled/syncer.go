package autoscaled

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/schedule"
)

// settleTime is how long the sum of replicas must stay the same before it is written. It also keeps the counts of a copy that has just been
// created, whose pods are not there yet, from the template.
const settleTime = 5 * time.Second

// Syncer writes the replicas that run in the members to templates whose replicas the members own.
type Syncer struct {
	cell  *cell.Cell
	queue *queue.Queue[cell.TemplateKey]
	now   func() time.Time

	mu      sync.Mutex
	settles map[cell.TemplateKey]reading
}

// reading is a sum of replicas, and since when it is the same.
type reading struct {
	sum   int64
	since time.Time
}

// NewSyncer returns a syncer for the templates of a cell.
func NewSyncer(c *cell.Cell) *Syncer {
	s := &Syncer{cell: c, queue: queue.New[cell.TemplateKey]("replicas-syncer"), now: time.Now, settles: map[cell.TemplateKey]reading{}}
	c.Templates.Subscribe(func(key cell.TemplateKey, old, now *cell.Template) {
		if now != nil && retained(now) || old != nil && retained(old) {
			s.queue.Add(key)
		}
	})
	c.SubscribeBindings(func(_ cell.Key, _, now *workv1alpha2.ResourceBinding) {
		if now == nil {
			return
		}
		if template := c.TemplateOf(now); template != nil && retained(template) {
			s.queue.Add(template.Key())
		}
	})
	return s
}

// Run writes replicas until the context ends.
func (s *Syncer) Run(ctx context.Context, workers int) { s.queue.Run(ctx, workers, s.Reconcile) }

// Reconcile writes the sum of the replicas in the members to a template when it has settled.
func (s *Syncer) Reconcile(ctx context.Context, key cell.TemplateKey) error {
	template := s.cell.Templates.Get(key)
	if template == nil || template.Deleting || template.Frozen || !retained(template) {
		s.forget(key)
		return nil
	}
	wanted, sum, known := s.replicas(template)
	if !known || sum == wanted {
		s.forget(key)
		return nil
	}
	if wait := s.settle(key, sum); wait > 0 {
		return queue.Later{After: wait}
	}
	return s.cell.PatchTemplate(ctx, template, map[string]any{
		"metadata": map[string]any{"resourceVersion": template.Version},
		"spec":     map[string]any{"replicas": sum},
	})
}

// replicas returns the replicas of a template and the sum of those in the members. The sum is known if the members own them: they are divided,
// the present number has been scheduled, and every chosen cluster has reported about the present template. A sum of zero never counts: a template without
// replicas would be removed from the members.
func (s *Syncer) replicas(template *cell.Template) (wanted, sum int64, known bool) {
	obj, err := template.Object()
	if err != nil {
		return 0, 0, false
	}
	wanted, found, err := fields.Int(obj.Object, "spec", "replicas")
	if err != nil || !found {
		return 0, 0, false
	}
	binding := s.cell.Binding(template.Key().Binding())
	if binding == nil || s.cell.TemplateOf(binding) != template || !divided(binding) || int64(binding.Spec.Replicas) != wanted ||
		binding.Status.SchedulerObservedGeneration != binding.Generation || len(binding.Spec.Clusters) == 0 {
		return 0, 0, false
	}
	sum, known = running(binding, template.Generation)
	return wanted, sum, known && sum > 0
}

func divided(binding *workv1alpha2.ResourceBinding) bool {
	return binding.Spec.Placement != nil && schedule.Divided(binding.Spec.Placement)
}

// running sums up the replicas that all chosen clusters report about a generation of the template.
func running(binding *workv1alpha2.ResourceBinding, generation int64) (sum int64, known bool) {
	items := binding.Status.AggregatedStatus
	for i := range binding.Spec.Clusters {
		at := slices.IndexFunc(items, func(item workv1alpha2.AggregatedStatusItem) bool {
			return item.ClusterName == binding.Spec.Clusters[i].Name
		})
		if at < 0 || !items[at].Applied || items[at].Status == nil {
			return 0, false
		}
		var reported struct {
			Replicas                   int64 `json:"replicas"`
			Generation                 int64 `json:"generation"`
			ObservedGeneration         int64 `json:"observedGeneration"`
			ResourceTemplateGeneration int64 `json:"resourceTemplateGeneration"`
		}
		if json.Unmarshal(items[at].Status.Raw, &reported) != nil || reported.ResourceTemplateGeneration != generation || reported.ObservedGeneration != reported.Generation {
			return 0, false
		}
		sum += reported.Replicas
	}
	return sum, true
}

// settle returns how long the sum must still stay the same.
func (s *Syncer) settle(key cell.TemplateKey, sum int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if last, ok := s.settles[key]; ok && last.sum == sum {
		return max(settleTime-now.Sub(last.since), 0)
	}
	s.settles[key] = reading{sum: sum, since: now}
	return settleTime
}

func (s *Syncer) forget(key cell.TemplateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settles, key)
}
