package controllermodel

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// StatefulSet is a StatefulSet with the strategy RollingUpdate.
type StatefulSet struct {
	workload
	// parallel is the pod management policy Parallel; otherwise pods are created and removed in order, one at a time. Counted is whether maxUnavailable counts.
	parallel, counted bool
	existing          []*pod
	current           string
}

// NewStatefulSet returns a StatefulSet that does not exist yet, with the policy Parallel or OrderedReady. A counted one has maxUnavailable, as with the feature
// MaxUnavailableStatefulSet; without it, one pod is unavailable at a time. There is no model of a parallel one without it: it keeps to no bound.
func NewStatefulSet(parallel, counted bool) *StatefulSet {
	return &StatefulSet{parallel: parallel, counted: counted || parallel}
}

// Apply stores a new spec.
func (s *StatefulSet) Apply(spec Spec) {
	if s.generation == 0 {
		s.current = spec.Revision
	}
	s.apply(spec)
}

// Count counts the pods.
func (s *StatefulSet) Count() Count {
	return s.count(s.running(), !slices.ContainsFunc(s.existing, func(p *pod) bool { return p.terminating || p.ordinal >= s.spec.Replicas }))
}

func (s *StatefulSet) running() []*pod {
	return slices.DeleteFunc(slices.Clone(s.existing), func(p *pod) bool { return p.terminating })
}

// Step is one pass of the controller, a pod that becomes available, or one that is gone.
func (s *StatefulSet) Step(random *rand.Rand) {
	if s.generation == 0 {
		return
	}
	switch random.IntN(4) {
	case 0:
		if i := slices.IndexFunc(s.existing, func(p *pod) bool { return p.terminating }); i >= 0 {
			s.existing = slices.Delete(s.existing, i, i+1)
		}
	case 1:
		become(random, s.existing)
	default:
		s.pass()
	}
}

// Run lets everything happen.
func (s *StatefulSet) Run() {
	if s.generation == 0 {
		return
	}
	s.existing = s.running()
	become(nil, s.existing)
	s.pass()
}

// Fail has a pod fail.
func (s *StatefulSet) Fail(random *rand.Rand) {
	if failed, gone := s.fail(random, s.running()); gone {
		s.existing = without(s.existing, failed)
	}
}

// FailAll has all pods fail.
func (s *StatefulSet) FailAll() { s.failAll(s.running()) }

// Unstick deletes pods of a bad revision that is not wanted any more: a StatefulSet that is managed in order waits for them for ever.
// They count as failed.
func (s *StatefulSet) Unstick() {
	before := len(s.existing)
	s.existing = slices.DeleteFunc(s.existing, func(p *pod) bool { return strings.HasPrefix(p.revision, Bad) && p.revision != s.spec.Revision })
	s.failed += before - len(s.existing)
}

func (s *StatefulSet) at(ordinal int) *pod {
	i := slices.IndexFunc(s.existing, func(p *pod) bool { return p.ordinal == ordinal })
	if i < 0 {
		return nil
	}
	return s.existing[i]
}

func (s *StatefulSet) terminate(p *pod) { p.terminating, p.available = true, false }

// pass is one pass of the controller. The status is that before the pass.
func (s *StatefulSet) pass() {
	s.writeStatus()
	if !s.fill() || !s.scaleIn() {
		return
	}
	if s.counted {
		s.update(s.spec.Unavailable)
	} else {
		s.updateInOrder()
	}
}

func (s *StatefulSet) writeStatus() {
	s.status = Status{ObservedGeneration: s.generation}
	for _, p := range s.existing {
		if p.terminating {
			s.status.Terminating++
			continue
		}
		s.status.Pods++
		if p.available {
			s.status.Available++
		}
		if p.revision == s.spec.Revision {
			s.status.Updated++
		} else if p.ordinal >= s.spec.Partition {
			s.status.Remaining++
		}
	}
	if s.status.Updated == s.spec.Replicas && s.status.Available == s.spec.Replicas && len(s.existing) == s.spec.Replicas {
		s.current = s.spec.Revision
	}
}

// fill creates missing pods and reports whether the controller goes on.
func (s *StatefulSet) fill() bool {
	for ordinal := range s.spec.Replicas {
		p := s.at(ordinal)
		if p == nil {
			p = &pod{revision: s.spec.Revision, ordinal: ordinal}
			if ordinal < s.spec.Partition {
				p.revision = s.current
			}
			s.existing = append(s.existing, p)
		}
		if !s.parallel && !p.available {
			return false
		}
	}
	return true
}

// scaleIn removes pods beyond the replicas and reports whether the controller goes on.
func (s *StatefulSet) scaleIn() bool {
	var condemned []*pod
	for _, p := range s.existing {
		if p.ordinal >= s.spec.Replicas {
			condemned = append(condemned, p)
		}
	}
	slices.SortFunc(condemned, func(a, b *pod) int { return b.ordinal - a.ordinal })
	for _, p := range condemned {
		if p.terminating && !s.parallel {
			return false
		}
		if !p.terminating {
			s.terminate(p)
			if !s.parallel {
				return false
			}
		}
	}
	return true
}

func (s *StatefulSet) updateInOrder() {
	for ordinal := s.spec.Replicas - 1; ordinal >= s.spec.Partition; ordinal-- {
		p := s.at(ordinal)
		if p.revision != s.spec.Revision && !p.terminating {
			s.terminate(p)
			return
		}
		if !p.available {
			return
		}
	}
}

func (s *StatefulSet) update(atMost int) {
	left := max(1, atMost)
	for ordinal := range s.spec.Replicas {
		if !s.at(ordinal).available {
			left--
		}
	}
	for ordinal := s.spec.Replicas - 1; ordinal >= s.spec.Partition && left > 0; ordinal-- {
		if p := s.at(ordinal); p.revision != s.spec.Revision && !p.terminating {
			s.terminate(p)
			left--
		}
	}
}
