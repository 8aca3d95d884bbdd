package controllermodel

import (
	"fmt"
	"maps"
	"slices"
)

// History is what a real controller did with one workload: all writes to the objects concerned, in the order in which they were stored.
type History struct {
	// Kind is Deployment or StatefulSet. Parallel and Counted are as for [NewStatefulSet].
	Kind              string
	Parallel, Counted bool `json:",omitempty"`
	// Source says where it was recorded.
	Source string
	Events []Event
}

// Event is one write. One of its fields is set.
type Event struct {
	Workload *WorkloadEvent `json:",omitempty"`
	Set      *SetEvent      `json:",omitempty"`
	Pod      *PodEvent      `json:",omitempty"`
}

// WorkloadEvent is a write of the workload, by a user or of its status.
type WorkloadEvent struct {
	Generation int64
	Spec       Spec
	Status     Status
}

// SetEvent is a write of a ReplicaSet, named by its revision.
type SetEvent struct {
	Revision                    string
	Size, Desired, Largest      int
	StatusPods, StatusAvailable int
}

// PodEvent is a write of a pod of a StatefulSet.
type PodEvent struct {
	Ordinal                int
	Revision               string
	Available, Terminating bool `json:",omitempty"`
	Gone                   bool `json:",omitempty"`
}

// Check reports whether the model allows a history: whether every decision of the real controller is one that the model makes by something that the controller
// may have seen. A controller may see what others wrote late, but not what it has written itself. It returns how many decisions there were.
func (h *History) Check() (decisions int, err error) {
	var r replay
	switch h.Kind {
	case "Deployment":
		r = &deploymentReplay{}
	case "StatefulSet":
		r = &statefulSetReplay{parallel: h.Parallel, counted: h.Counted}
	default:
		return 0, fmt.Errorf("there is no model of %s", h.Kind)
	}
	for i := range h.Events {
		decided, err := r.next(&h.Events[i])
		if err != nil {
			return decisions, fmt.Errorf("event %d of %s: %w", i, h.Source, err)
		}
		if decided {
			decisions++
		}
	}
	return decisions, nil
}

// replay follows a history.
type replay interface {
	// next takes the next event. It reports whether it is a decision of the controller, and fails if the model does not make it.
	next(*Event) (bool, error)
}

// late is how many earlier values of something the controller may still see.
const late = 4

// values are the newest value of something and earlier ones, which a controller may still see.
type values[T comparable] []T

func (v *values[T]) add(value T) {
	if n := len(*v); n > 0 && (*v)[n-1] == value {
		return
	}
	*v = append(*v, value)
	*v = (*v)[max(0, len(*v)-late):]
}

// specs are the specs of a workload by which its controller may act, the newest last: when it has reported a generation, it acts by no earlier one.
type specs []WorkloadEvent

func (s *specs) take(w *WorkloadEvent) {
	if n := len(*s); n == 0 || (*s)[n-1].Generation != w.Generation {
		*s = append(*s, *w)
	}
	*s = slices.DeleteFunc(*s, func(earlier WorkloadEvent) bool { return earlier.Generation < w.Status.ObservedGeneration })
}

func (s specs) newest() *Spec { return &s[len(s)-1].Spec }

// each calls a function with all combinations of one index below each of the limits, until it returns true. It reports whether it did.
func each(limits []int, try func(chosen []int) bool) bool {
	chosen := make([]int, len(limits))
	for {
		if try(chosen) {
			return true
		}
		i := 0
		for ; i < len(limits); i++ {
			if chosen[i]++; chosen[i] < limits[i] {
				break
			}
			chosen[i] = 0
		}
		if i == len(limits) {
			return false
		}
	}
}

// passes are the passes of the model that explain the last decision, each with all its decisions. A controller may decide several things in one pass, by what it
// saw before the first of them.
type passes []map[string]bool

// explain reports whether a decision is one of the pass that explains the last one, or of a new pass.
func (p *passes) explain(decision string, again func(yield func(decisions map[string]bool))) bool {
	same := slices.DeleteFunc(slices.Clone(*p), func(decisions map[string]bool) bool { return !decisions[decision] })
	again(func(decisions map[string]bool) {
		if decisions[decision] {
			same = append(same, decisions)
		}
	})
	*p = same
	return len(same) > 0
}

// deploymentReplay follows a Deployment. What its controller decides are the sizes of its ReplicaSets.
type deploymentReplay struct {
	specs  specs
	status Status
	sets   []*recordedSet // in the order in which they were created
	passes passes
}

type recordedSet struct {
	SetEvent
	statuses values[[2]int] // pods and available ones
}

func (r *deploymentReplay) next(e *Event) (bool, error) {
	switch {
	case e.Workload != nil:
		r.specs.take(e.Workload)
		if e.Workload.Status != r.status {
			r.status = e.Workload.Status
			return true, r.reported()
		}
		return false, nil
	case e.Set == nil:
		return false, fmt.Errorf("it is no event of a Deployment")
	}
	i := slices.IndexFunc(r.sets, func(s *recordedSet) bool { return s.Revision == e.Set.Revision })
	decided := i < 0 || r.sets[i].Size != e.Set.Size
	if decided {
		if err := r.resized(e.Set); err != nil {
			return true, err
		}
	}
	if i < 0 {
		i = len(r.sets)
		r.sets = append(r.sets, &recordedSet{})
	}
	r.sets[i].SetEvent = *e.Set
	r.sets[i].statuses.add([2]int{e.Set.StatusPods, e.Set.StatusAvailable})
	return decided, nil
}

// views calls a function with the Deployment in all states that the controller may see, until it returns true.
func (r *deploymentReplay) views(try func(*Deployment) bool) bool {
	limits := []int{len(r.specs)}
	for _, set := range r.sets {
		limits = append(limits, len(set.statuses))
	}
	if len(r.specs) == 0 {
		return false
	}
	return each(limits, func(chosen []int) bool {
		d := NewDeployment()
		by := &r.specs[chosen[0]]
		d.spec, d.seen, d.generation, d.status = by.Spec, by.Spec, by.Generation, r.status
		for i, set := range r.sets {
			status := set.statuses[len(set.statuses)-1-chosen[1+i]]
			d.sets = append(d.sets, &replicaSet{
				revision: set.Revision, size: set.Size, desired: set.Desired, largest: set.Largest, statusPods: status[0], statusAvailable: status[1],
			})
		}
		return try(d)
	})
}

// resized checks that the model gives a ReplicaSet this size.
func (r *deploymentReplay) resized(set *SetEvent) error {
	allowed := map[string]bool{}
	decision := func(revision string, size int) string { return fmt.Sprintf("%s to %d", revision, size) }
	if r.passes.explain(decision(set.Revision, set.Size), func(yield func(map[string]bool)) {
		r.views(func(d *Deployment) bool {
			decisions := map[string]bool{}
			d.resized = func(of *replicaSet) { decisions[decision(of.revision, of.size)] = true }
			d.pass()
			maps.Copy(allowed, decisions)
			yield(decisions)
			return false
		})
	}) {
		return nil
	}
	return fmt.Errorf("the controller gives ReplicaSet %s the size %d, and the model only %v\nspecs %+v\nsets %s", set.Revision, set.Size, allowed, r.specs, r.describe())
}

// reported checks that the model reports this status.
func (r *deploymentReplay) reported() error {
	want := r.status
	if r.views(func(d *Deployment) bool {
		d.writeStatus()
		return d.status.Pods == want.Pods && d.status.Available == want.Available && d.status.Updated == want.Updated
	}) {
		return nil
	}
	return fmt.Errorf("the controller reports %+v, and the model does not\nspecs %+v\nsets %s", want, r.specs, r.describe())
}

func (r *deploymentReplay) describe() string {
	text := ""
	for _, set := range r.sets {
		text += fmt.Sprintf("%+v %v; ", set.SetEvent, set.statuses)
	}
	return text
}

// statefulSetReplay follows a StatefulSet. What its controller decides is which pods are created and removed.
type statefulSetReplay struct {
	parallel, counted bool
	specs             specs
	pods              map[int]*recordedPod // by ordinal
	current           values[string]       // revisions of pods below the partition
	passes            passes
}

type recordedPod struct {
	PodEvent
	available values[bool]
}

func (r *statefulSetReplay) next(e *Event) (bool, error) {
	switch {
	case e.Workload != nil:
		r.specs.take(e.Workload)
		if len(r.current) == 0 {
			r.current.add(e.Workload.Spec.Revision)
		}
		return false, nil
	case e.Pod == nil:
		return false, fmt.Errorf("it is no event of a StatefulSet")
	}
	now, before := e.Pod, r.pods[e.Pod.Ordinal]
	removed := now.Gone || now.Terminating
	var err error
	decided := true
	switch {
	case before == nil && !removed:
		err = r.explain(creates(now.Ordinal, now.Revision))
	case before != nil && !before.Terminating && removed:
		err = r.explain(removes(now.Ordinal))
	default:
		decided = false
	}
	r.take(now)
	return decided, err
}

// take records a pod.
func (r *statefulSetReplay) take(now *PodEvent) {
	if r.pods == nil {
		r.pods = map[int]*recordedPod{}
	}
	if now.Gone {
		delete(r.pods, now.Ordinal)
		return
	}
	p := r.pods[now.Ordinal]
	if p == nil {
		p = &recordedPod{}
		r.pods[now.Ordinal] = p
	}
	p.PodEvent = *now
	p.available.add(now.Available && !now.Terminating)
	// When all pods are updated and available, their revision is that of pods below the partition, too.
	spec := r.specs.newest()
	updated := 0
	for _, p := range r.pods {
		if p.Revision == spec.Revision && p.Available && !p.Terminating {
			updated++
		}
	}
	if updated == spec.Replicas && len(r.pods) == updated {
		r.current.add(spec.Revision)
	}
}

func creates(ordinal int, revision string) string {
	return fmt.Sprintf("creates pod %d of %s", ordinal, revision)
}

func removes(ordinal int) string { return fmt.Sprintf("removes pod %d", ordinal) }

// explain checks that the model makes a decision.
func (r *statefulSetReplay) explain(decision string) error {
	if len(r.specs) > 0 && r.passes.explain(decision, r.again) {
		return nil
	}
	text := ""
	for _, p := range r.pods {
		text += fmt.Sprintf("%+v %v; ", p.PodEvent, p.available)
	}
	return fmt.Errorf("the controller %s, and the model does not\nspecs %+v\npods %s", decision, r.specs, text)
}

// again runs one pass from every state that the controller may see.
func (r *statefulSetReplay) again(yield func(decisions map[string]bool)) {
	ordinals := slices.Sorted(maps.Keys(r.pods))
	limits := []int{len(r.specs), len(r.current)}
	for _, ordinal := range ordinals {
		limits = append(limits, len(r.pods[ordinal].available))
	}
	each(limits, func(chosen []int) bool {
		s := NewStatefulSet(r.parallel, r.counted)
		by := &r.specs[chosen[0]]
		s.spec, s.generation, s.current = by.Spec, by.Generation, r.current[len(r.current)-1-chosen[1]]
		for i, ordinal := range ordinals {
			p := r.pods[ordinal]
			s.existing = append(s.existing, &pod{
				ordinal: ordinal, revision: p.Revision, terminating: p.Terminating, available: p.available[len(p.available)-1-chosen[2+i]] && !p.Terminating,
			})
		}
		s.pass()
		decisions := map[string]bool{}
		for _, p := range s.existing {
			switch before := r.pods[p.ordinal]; {
			case before == nil:
				decisions[creates(p.ordinal, p.revision)] = true
			case p.terminating && !before.Terminating:
				decisions[removes(p.ordinal)] = true
			}
		}
		yield(decisions)
		return false
	})
}
