package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// tracker watches the Deployments of the cell and of all members and records their progress.
type tracker struct {
	members int
	notify  chan struct{}

	mu       sync.Mutex
	rollouts map[string]*rollout
	objects  int // in the cell and in all members
}

// rollout is the propagation of one template to the members and of its status back.
type rollout struct {
	image    string
	replicas int32 // in each member
	wave     *wave

	start    time.Time
	arrived  []time.Time // in each member
	ready    []time.Time // in each member, as the member itself says
	template *appsv1.Deployment

	present, reported time.Time // in all members; on the template
}

// wave is a number of rollouts that are waited for together.
type wave struct {
	tracker           *tracker
	size              int
	rollouts          []*rollout
	present, reported int
}

// track starts to watch and returns when the caches have synced.
func track(ctx context.Context, f *federation) (*tracker, error) {
	t := &tracker{members: len(f.members), notify: make(chan struct{}, 1), rollouts: map[string]*rollout{}}
	see := []func(*appsv1.Deployment){t.seeTemplate}
	for i := range f.members {
		see = append(see, func(d *appsv1.Deployment) { t.seeInMember(i, d) })
	}
	for i, p := range append([]*plane{f.cell}, f.members...) {
		informer := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(benchNamespace)).Apps().V1().Deployments().Informer()
		if err := informer.SetTransform(dropManagedFields); err != nil {
			return nil, err
		}
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				t.count(1)
				see[i](obj.(*appsv1.Deployment))
			},
			UpdateFunc: func(_, obj any) { see[i](obj.(*appsv1.Deployment)) },
			DeleteFunc: func(any) { t.count(-1) },
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil, fmt.Errorf("watching Deployments of %s: %w", p.Name(), ctx.Err())
		}
	}
	return t, nil
}

// dropManagedFields saves memory.
func dropManagedFields(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// newWave returns a wave of a number of rollouts.
func (t *tracker) newWave(size int) *wave { return &wave{tracker: t, size: size} }

// begin starts the clock of a rollout; earlier events do not count.
func (w *wave) begin(name, image string, replicas int32) {
	t := w.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	j := &rollout{image: image, replicas: replicas, wave: w, start: time.Now(), arrived: make([]time.Time, t.members), ready: make([]time.Time, t.members)}
	t.rollouts[name] = j
	w.rollouts = append(w.rollouts, j)
}

func (t *tracker) count(change int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objects += change
	if change < 0 {
		t.poke()
	}
}

func (t *tracker) seeInMember(member int, d *appsv1.Deployment) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.rollouts[d.Name]
	if j == nil || imageOf(d) != j.image {
		return
	}
	t.poke() // of a thousand concurrent rollouts, none may finish for minutes
	if j.ready[member].IsZero() && settled(d, j.replicas) {
		j.ready[member] = now
	}
	if !j.arrived[member].IsZero() {
		return
	}
	j.arrived[member] = now
	if _, everywhere := last(j.arrived); everywhere {
		j.present = now
		j.wave.present++
		j.checkReport(now)
	}
}

func (t *tracker) seeTemplate(d *appsv1.Deployment) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.rollouts[d.Name]
	if j == nil || imageOf(d) != j.image {
		return
	}
	j.template = d
	j.checkReport(now)
}

// checkReport records the end of a rollout: a status from before the last member had it does not count.
func (j *rollout) checkReport(now time.Time) {
	members := int32(len(j.arrived))
	if !j.reported.IsZero() || j.present.IsZero() || j.template == nil || !settled(j.template, members*j.replicas) {
		return
	}
	j.reported, j.template = now, nil
	j.wave.reported++
	j.wave.tracker.poke()
}

// last returns the latest time; all is false if one is missing.
func last(times []time.Time) (latest time.Time, all bool) {
	for _, t := range times {
		if t.IsZero() {
			return latest, false
		}
		if t.After(latest) {
			latest = t
		}
	}
	return latest, true
}

func (t *tracker) poke() {
	select {
	case t.notify <- struct{}{}:
	default:
	}
}

// stallBound is how long a phase may make no progress before it fails.
const stallBound = 2 * time.Minute

// wait returns when the condition holds. The condition also describes the progress; it is checked after every event.
func (t *tracker) wait(ctx context.Context, what string, timeout time.Duration, done func() (bool, string)) error {
	stalled := time.NewTimer(timeout)
	defer stalled.Stop()
	for {
		t.mu.Lock()
		ok, state := done()
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			return fmt.Errorf("waiting until %s: nothing moved for %s; %s", what, timeout, state)
		case <-t.notify:
			stalled.Reset(timeout)
		}
	}
}

// untilReported waits until all templates of the wave have the status of all members.
func (w *wave) untilReported(ctx context.Context) error {
	return w.tracker.wait(ctx, "all have their status", stallBound, func() (bool, string) {
		return w.reported == w.size, fmt.Sprintf("%d of %d have it, %d are in all members", w.reported, w.size, w.present)
	})
}

// untilGone waits until no Deployment is left anywhere.
func (t *tracker) untilGone(ctx context.Context) error {
	return t.wait(ctx, "all are gone", stallBound, func() (bool, string) {
		return t.objects == 0, fmt.Sprintf("%d are left in the cell and the members", t.objects)
	})
}
