package controllermodel

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Spec is the part of a workload that a rollout is about. Percentages are resolved.
type Spec struct {
	Replicas, Surge, Unavailable, Partition int
	Revision                                string
	Paused                                  bool
}

// Status is the status that a controller last wrote.
type Status struct {
	ObservedGeneration                               int64
	Pods, Terminating, Available, Updated, Remaining int
}

// Workload is a workload and its controller.
type Workload interface {
	// Apply stores a new spec, with the next generation.
	Apply(Spec)
	// Step lets the controller or a pod do one thing.
	Step(*rand.Rand)
	// Run lets everything happen that can happen, in a fair order.
	Run()
	// Generation returns the generation of the spec.
	Generation() int64
	// Status returns the status.
	Status() Status
	// Fail has a pod fail by itself: it is unavailable for a while, or gone.
	Fail(*rand.Rand)
	// FailAll has all pods fail.
	FailAll()
	// Count returns the pods that exist.
	Count() Count
	// Unstick does what an operator has to do if the controller hangs.
	Unstick()
}

// Count counts the pods that exist, apart from terminating ones.
type Count struct {
	Pods, Available int
	// Failed is how many pods may be unavailable because they failed by themselves, or were removed although the bounds do not allow it: instead of pods
	// that had only just become ready, or together with unavailable ones that were marked for deletion.
	Failed int
	// Revisions is the number of pods of each revision, and Restored how many of them were to keep the revision of before, and have it, but are updated: the
	// revision of a CloneSet that was taken back is both.
	Revisions, Restored map[string]int
}

// Bad begins the names of revisions whose pods never become available.
const Bad = "bad"

type pod struct {
	id       int
	revision string
	// ready pods of a Deployment have not been ready for minReadySeconds yet, unless they are available.
	ready, available bool
	ordinal          int
	// restored pods of a CloneSet were created to keep the revision of before, which is the newest one.
	restored bool
	// terminating pods of a StatefulSet block their ordinal, and those of a CloneSet are marked for deletion.
	terminating bool
}

// workload is what all kinds share.
type workload struct {
	spec       Spec
	generation int64
	status     Status
	failed     int
}

func (w *workload) Generation() int64 { return w.generation }
func (w *workload) Status() Status    { return w.status }

func (w *workload) apply(spec Spec) {
	w.spec = spec
	w.generation++
}

// count counts pods. Failures have been made up for when all pods are there and available; whole is whether they are the right ones.
func (w *workload) count(pods []*pod, whole bool) Count {
	c := Count{Revisions: map[string]int{}, Restored: map[string]int{}}
	for _, p := range pods {
		c.Pods++
		c.Revisions[p.revision]++
		if p.restored {
			c.Restored[p.revision]++
		}
		if p.available {
			c.Available++
		}
	}
	if whole && c.Pods == w.spec.Replicas && c.Available == c.Pods {
		w.failed = 0
	}
	c.Failed = w.failed
	return c
}

// become makes one of the pods ready, or available if it is ready. Without random, all of them are available.
func become(random *rand.Rand, pods []*pod) {
	var waiting []*pod
	for _, p := range pods {
		if !p.available && !p.terminating && !strings.HasPrefix(p.revision, Bad) {
			waiting = append(waiting, p)
		}
	}
	if random != nil && len(waiting) > 0 {
		waiting = []*pod{waiting[random.IntN(len(waiting))]}
	}
	for _, p := range waiting {
		p.available = random == nil || p.ready
		p.ready = true
	}
}

// unavailableFirst returns the pods in the order in which a controller removes them.
func unavailableFirst(pods []*pod) []*pod {
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *pod) int {
		switch {
		case a.available == b.available:
			return 0
		case b.available:
			return -1
		default:
			return 1
		}
	})
	return sorted
}

// fail marks an available pod as failed. It reports whether the pod is gone.
func (w *workload) fail(random *rand.Rand, pods []*pod) (*pod, bool) {
	var up []*pod
	for _, p := range pods {
		if p.available {
			up = append(up, p)
		}
	}
	if len(up) == 0 {
		return nil, false
	}
	p := up[random.IntN(len(up))]
	p.ready, p.available = false, false
	w.failed++
	return p, random.IntN(2) == 0
}

func (w *workload) failAll(pods []*pod) {
	for _, p := range pods {
		if p.available {
			p.available = false
			w.failed++
		}
		p.ready = false
	}
}

func without(pods []*pod, gone *pod) []*pod {
	return slices.DeleteFunc(pods, func(p *pod) bool { return p == gone })
}
