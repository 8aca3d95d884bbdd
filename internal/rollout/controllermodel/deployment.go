package controllermodel

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Deployment is a Deployment with the strategy RollingUpdate, and its ReplicaSets.
type Deployment struct {
	workload
	sets []*replicaSet // the newest last
	seen Spec          // of the last pass
	// resized is called whenever a set is created or gets another size; nil means not.
	resized func(*replicaSet)
}

type replicaSet struct {
	revision string
	size     int
	// desired and largest are annotations: the replicas of the Deployment, and these and its surge, when the set was last scaled.
	desired, largest int
	pods             []*pod
	// What the status of the set says, which may be outdated.
	statusPods, statusAvailable int
}

// NewDeployment returns a Deployment that does not exist yet.
func NewDeployment() *Deployment { return &Deployment{} }

// Apply stores a new spec.
func (d *Deployment) Apply(spec Spec) { d.apply(spec) }

// Count counts the pods. Those that a ReplicaSet is about to remove count as terminating: the controller's own bound is on the sizes of its
// ReplicaSets, and one may create pods before another has removed its own. They count as available for as long as they are.
func (d *Deployment) Count() Count {
	whole := total(d.sets) == d.spec.Replicas && !slices.ContainsFunc(d.sets, func(s *replicaSet) bool { return len(s.pods) != s.size })
	c := d.count(d.pods(), whole)
	for _, set := range d.sets {
		c.Pods -= max(0, len(set.pods)-set.size)
	}
	return c
}

func (d *Deployment) pods() []*pod {
	var pods []*pod
	for _, set := range d.sets {
		pods = append(pods, set.pods...)
	}
	return pods
}

// Step is one pass of the Deployment controller, a ReplicaSet that creates or removes some pods, or reports them, or a pod that becomes
// available.
func (d *Deployment) Step(random *rand.Rand) {
	if d.generation == 0 {
		return
	}
	switch n := random.IntN(8); {
	case n < 3:
		d.pass()
	case n < 5 && len(d.sets) > 0:
		set := d.sets[random.IntN(len(d.sets))]
		d.manage(set, 1+random.IntN(3))
	case n < 6 && len(d.sets) > 0:
		d.sets[random.IntN(len(d.sets))].report()
	default:
		become(random, d.pods())
	}
}

// Run lets everything happen.
func (d *Deployment) Run() {
	if d.generation == 0 {
		return
	}
	d.catchUp()
	become(nil, d.pods())
	d.catchUp()
	d.pass()
	d.catchUp()
	d.pass()
}

func (d *Deployment) catchUp() {
	for _, set := range d.sets {
		d.manage(set, math.MaxInt)
		set.report()
	}
}

// Fail has a pod fail.
func (d *Deployment) Fail(random *rand.Rand) {
	failed, gone := d.fail(random, d.pods())
	if gone {
		for _, set := range d.sets {
			set.pods = without(set.pods, failed)
		}
	}
}

// FailAll has all pods fail.
func (d *Deployment) FailAll() { d.failAll(d.pods()) }

// Unstick corrects the annotation of a single ReplicaSet. If it has the new size already when the Deployment is scaled, the annotation is
// left outdated, and the controller sees a scaling event for ever (kubernetes/kubernetes#138036).
func (d *Deployment) Unstick() {
	if active := d.active(); len(active) == 1 && active[0].size == d.spec.Replicas {
		active[0].desired = d.spec.Replicas
	}
}

// manage has a set create or remove up to some pods. It removes pods that are not ready first. If all are ready, it removes an available one, although there may be
// one that is not available yet: a ReplicaSet does not consider minReadySeconds when it ranks its pods (kubernetes/kubernetes#22065).
func (d *Deployment) manage(s *replicaSet, atMost int) {
	for ; len(s.pods) < s.size && atMost > 0; atMost-- {
		s.pods = append(s.pods, &pod{revision: s.revision})
	}
	justReady := func(p *pod) bool { return p.ready && !p.available }
	for ; len(s.pods) > s.size && atMost > 0; atMost-- {
		gone := s.pods[0]
		for _, p := range s.pods {
			if gone.ready && !p.ready || justReady(gone) && p.available {
				gone = p
			}
		}
		s.pods = without(s.pods, gone)
		if gone.available && slices.ContainsFunc(s.pods, justReady) {
			d.failed++
		}
	}
}

// report writes the status of the set.
func (s *replicaSet) report() {
	s.statusPods, s.statusAvailable = len(s.pods), 0
	for _, p := range s.pods {
		if p.available {
			s.statusAvailable++
		}
	}
}

// pass is one pass of the Deployment controller.
func (d *Deployment) pass() {
	if d.seen.Replicas != d.spec.Replicas || d.seen.Revision != d.spec.Revision {
		d.catchUp()
	}
	d.seen = d.spec
	switch {
	case d.spec.Paused, d.isScaled():
		d.scale()
	default:
		d.roll()
	}
	d.writeStatus()
}

func (d *Deployment) writeStatus() {
	d.status = Status{ObservedGeneration: d.generation}
	for _, set := range d.sets {
		d.status.Pods += set.statusPods
		d.status.Available += set.statusAvailable
		if set.revision == d.spec.Revision {
			d.status.Updated = set.statusPods
		}
	}
	d.status.Remaining = d.status.Pods - d.status.Updated
}

// current returns the set of the spec's revision, nil if there is none.
func (d *Deployment) current() *replicaSet {
	i := slices.IndexFunc(d.sets, func(s *replicaSet) bool { return s.revision == d.spec.Revision })
	if i < 0 {
		return nil
	}
	return d.sets[i]
}

func (d *Deployment) old() []*replicaSet {
	return slices.DeleteFunc(slices.Clone(d.sets), func(s *replicaSet) bool { return s.revision == d.spec.Revision })
}

func (d *Deployment) active() []*replicaSet {
	return slices.DeleteFunc(slices.Clone(d.sets), func(s *replicaSet) bool { return s.size == 0 })
}

func (d *Deployment) resize(set *replicaSet, size int) bool {
	changed := set.size != size
	set.size, set.desired, set.largest = size, d.spec.Replicas, d.spec.Replicas+d.spec.Surge
	if d.resized != nil && (changed || size == 0) {
		d.resized(set)
	}
	return changed
}

func total(sets []*replicaSet) int {
	sum := 0
	for _, set := range sets {
		sum += set.size
	}
	return sum
}

// isScaled reports whether the replicas have changed since the sets were scaled.
func (d *Deployment) isScaled() bool {
	return slices.ContainsFunc(d.active(), func(s *replicaSet) bool { return s.desired != d.spec.Replicas })
}

// scale scales all sets in proportion. It does not look at what is available.
func (d *Deployment) scale() {
	active, current := d.active(), d.current()
	switch {
	case len(active) == 1:
		d.resizeIfDifferent(active[0], d.spec.Replicas)
		return
	case len(active) == 0 && current != nil:
		d.resizeIfDifferent(current, d.spec.Replicas)
		return
	case len(active) == 0:
		if len(d.sets) > 0 {
			d.resizeIfDifferent(d.sets[len(d.sets)-1], d.spec.Replicas)
		}
		return
	case current != nil && current.size == d.spec.Replicas && current.desired == d.spec.Replicas && current.statusAvailable == d.spec.Replicas:
		for _, set := range active {
			if set != current {
				d.resize(set, 0)
			}
		}
		return
	}
	allowed := 0
	if d.spec.Replicas > 0 {
		allowed = d.spec.Replicas + d.spec.Surge
	}
	add := allowed - total(active)
	slices.SortStableFunc(active, func(a, b *replicaSet) int {
		if a.size != b.size {
			return b.size - a.size
		}
		if add > 0 {
			return slices.Index(d.sets, b) - slices.Index(d.sets, a) // newer first
		}
		return slices.Index(d.sets, a) - slices.Index(d.sets, b)
	})
	sizes, added := make([]int, len(active)), 0
	for i, set := range active {
		part := d.proportion(set, add, added)
		sizes[i] = set.size + part
		added += part
	}
	sizes[0] = max(0, sizes[0]+add-added)
	for i, set := range active {
		d.resize(set, sizes[i])
	}
}

func (d *Deployment) resizeIfDifferent(set *replicaSet, size int) {
	if set.size != size {
		d.resize(set, size)
	}
}

func (d *Deployment) proportion(set *replicaSet, add, added int) int {
	if add == 0 || add == added {
		return 0
	}
	part := -set.size
	if d.spec.Replicas > 0 {
		before := set.largest
		if before == 0 {
			before = max(1, d.status.Pods)
		}
		part = int(math.Round(float64(set.size*(d.spec.Replicas+d.spec.Surge))/float64(before))) - set.size
	}
	if add > 0 {
		return min(part, add-added)
	}
	return max(part, add-added)
}

// roll is one pass of a rolling update: new pods as surge allows, otherwise fewer old ones.
func (d *Deployment) roll() {
	current := d.current()
	if current == nil {
		current = &replicaSet{revision: d.spec.Revision}
		d.sets = append(d.sets, current)
		d.resize(current, d.grown(current))
		return
	}
	switch {
	case current.size > d.spec.Replicas:
		d.resize(current, d.spec.Replicas)
		return
	case current.size < d.spec.Replicas:
		if d.resizeNew(current) {
			return
		}
	}
	d.shrinkOld(current)
}

func (d *Deployment) resizeNew(current *replicaSet) bool {
	size := d.grown(current)
	if size == current.size {
		return false
	}
	return d.resize(current, size)
}

func (d *Deployment) grown(current *replicaSet) int {
	room := d.spec.Replicas + d.spec.Surge - total(d.sets)
	if room <= 0 {
		return current.size
	}
	return current.size + min(room, d.spec.Replicas-current.size)
}

func (d *Deployment) shrinkOld(current *replicaSet) {
	old := slices.DeleteFunc(d.old(), func(s *replicaSet) bool { return s.size == 0 })
	least := d.spec.Replicas - d.spec.Unavailable
	spare := total(d.sets) - least - (current.size - current.statusAvailable)
	if len(old) == 0 || spare <= 0 {
		return
	}
	cleaned := 0
	for _, set := range old {
		if cleaned >= spare || set.size == set.statusAvailable {
			continue
		}
		by := min(spare-cleaned, set.size-set.statusAvailable)
		if by < 0 {
			return // the controller reports an invalid request and tries again later
		}
		d.resize(set, set.size-by)
		cleaned += by
	}
	available := current.statusAvailable
	for _, set := range old {
		available += set.statusAvailable
	}
	for _, set := range old {
		if by := min(set.size, available-least); by > 0 {
			d.resize(set, set.size-by)
			available -= by
		}
	}
}
