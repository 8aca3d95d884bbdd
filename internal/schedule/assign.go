package schedule

import (
	"cmp"
	"slices"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
)

// strategy is how clusters share replicas.
type strategy int

const (
	duplicated strategy = iota
	static
	dynamic
	aggregated
)

// byCapacity tells whether what clusters have room for decides.
func (s strategy) byCapacity() bool { return s == dynamic || s == aggregated }

func strategyOf(placement *policyv1alpha1.Placement) strategy {
	if !Divided(placement) {
		return duplicated
	}
	scheduling := placement.ReplicaScheduling
	switch {
	case scheduling.ReplicaDivisionPreference == policyv1alpha1.ReplicaDivisionPreferenceAggregated:
		return aggregated
	case scheduling.WeightPreference != nil && scheduling.WeightPreference.DynamicWeight != "":
		return dynamic
	default:
		return static
	}
}

// Divided tells whether a placement shares replicas among clusters.
func Divided(placement *policyv1alpha1.Placement) bool {
	return placement.ReplicaScheduling != nil && placement.ReplicaScheduling.ReplicaSchedulingType != policyv1alpha1.ReplicaSchedulingTypeDuplicated
}

// assign gives each selected cluster its replicas.
func (c *cycle) assign(selected []*candidate) *Failure {
	switch {
	case c.isSet || c.strategy == duplicated || c.spec.Replicas <= 0:
		for _, at := range selected {
			at.replicas = max(0, c.spec.Replicas)
		}
		return nil
	case c.strategy == static:
		return c.assignByWeight(selected)
	default:
		return c.assignByCapacity(selected)
	}
}

// assignByWeight divides all replicas by fixed weights. A cluster's weight is the highest of the rules that match it.
// Where no rule matches any, all weigh the same.
func (c *cycle) assignByWeight(selected []*candidate) *Failure {
	weights := make([]int64, len(selected))
	weighted := false
	if preference := c.placement.ReplicaScheduling.WeightPreference; preference != nil {
		for i := range preference.StaticWeightList {
			rule := &preference.StaticWeightList[i]
			matcher, err := affinity.Compile(&rule.TargetCluster)
			if err != nil {
				return unschedulable("staticWeightList[%d].targetCluster: %v", i, err)
			}
			for at := range selected {
				if rule.Weight > weights[at] && matcher.Matches(selected[at].cluster) {
					weights[at], weighted = rule.Weight, true
				}
			}
		}
	}
	c.divide(c.spec.Replicas, selected, func(i int) int64 {
		if !weighted {
			return 1
		}
		return weights[i]
	})
	return nil
}

// divide adds to the replicas of clusters in proportion to their weights.
func (c *cycle) divide(replicas int32, clusters []*candidate, weight func(int) int64) {
	claimants := make(queue, len(clusters))
	for i, at := range clusters {
		claimants[i] = claimant{name: at.cluster.Name, weight: uint64(max(0, weight(i))), position: i}
	}
	for _, claimant := range apportion(replicas, claimants, string(c.request.UID)) {
		clusters[claimant.position].replicas += int32(claimant.seats)
	}
}

// assignByCapacity divides by what clusters have room for. Replicas stay where they are as far as that is possible.
func (c *cycle) assignByCapacity(selected []*candidate) *Failure {
	assigned := int64(0)
	for _, at := range selected {
		assigned += int64(at.assigned)
		at.replicas = at.assigned
	}
	wanted := int64(c.spec.Replicas)
	steps := byStep(selected)
	switch {
	case c.request.Fresh:
		staying := c.leaveAtPace(selected, wanted)
		return c.grow(byStep(c.notDrained(selected)), wanted-staying, (*candidate).capacity)
	case assigned < wanted:
		if failure := c.grow(steps, wanted-assigned, func(at *candidate) int64 { return at.available }); failure != nil {
			return failure
		}
	case assigned > wanted:
		c.shrink(steps, assigned-wanted)
	}
	c.move(steps)
	return nil
}

// byStep groups clusters in the order in which they are filled.
func byStep(selected []*candidate) [][]*candidate {
	var steps [][]*candidate
	for _, at := range selected {
		for at.step >= len(steps) {
			steps = append(steps, nil)
		}
		steps[at.step] = append(steps[at.step], at)
	}
	return steps
}

// grow fills step by step. With a profile the room that exists is filled before clusters have to grow for it.
func (c *cycle) grow(steps [][]*candidate, missing int64, room func(*candidate) int64) *Failure {
	total := int64(0)
	for _, step := range steps {
		c.estimate(step)
		total += sum(step, room)
	}
	pending := max(0, missing-total)
	var waiting *candidate
	if pending > 0 {
		if waiting = c.gatherIn(steps); waiting == nil {
			return unschedulable("clusters have room for %d of %d more replicas", total, missing)
		}
	}
	missing -= pending
	for _, step := range steps {
		missing -= c.fill(step, missing, room)
	}
	if waiting != nil {
		waiting.replicas += int32(pending)
		c.note("%d replicas fit nowhere and wait in cluster %s, which can grow", pending, waiting.cluster.Name)
	}
	return nil
}

// fill shares out replicas in one step and returns how many.
func (c *cycle) fill(step []*candidate, missing int64, room func(*candidate) int64) int64 {
	if c.request.Profile == nil {
		here := min(missing, sum(step, room))
		c.share(step, here, room)
		return here
	}
	existing := func(at *candidate) int64 { return max(0, room(at)-at.growth) }
	here := min(missing, sum(step, existing))
	c.share(step, here, existing)
	grown := func(at *candidate) int64 { return min(room(at), at.growth) }
	growing := min(missing-here, sum(step, grown))
	if growing > 0 && c.gathers() {
		step = c.fewest(step, growing, grown)
	}
	c.share(step, growing, grown)
	return here + growing
}

// gathers tells whether replicas that need growth go to as few clusters as possible.
func (c *cycle) gathers() bool {
	return c.request.Profile != nil && c.request.Profile.Clusters != nil && c.request.Profile.Clusters.GatherPending
}

// gatherIn returns the cluster in which replicas wait that fit nowhere, nil if none can grow.
func (c *cycle) gatherIn(steps [][]*candidate) *candidate {
	if !c.gathers() {
		return nil
	}
	growable := slices.DeleteFunc(slices.Concat(steps...), func(at *candidate) bool { return !at.growable() || c.draining(at) })
	if len(growable) == 0 {
		return nil
	}
	return slices.MinFunc(growable, func(a, b *candidate) int {
		return cmp.Or(-cmp.Compare(min(a.assigned, 1), min(b.assigned, 1)), cmp.Compare(a.step, b.step), -cmp.Compare(a.score, b.score), cmp.Compare(a.position, b.position))
	})
}

// shrink empties the steps from the last on.
func (c *cycle) shrink(steps [][]*candidate, excess int64) {
	for _, tier := range slices.Backward(steps) {
		held := int64(0)
		for _, at := range tier {
			held += int64(at.assigned)
		}
		if excess == 0 || held == 0 {
			continue
		}
		going := min(excess, held)
		excess -= going
		for _, at := range tier {
			at.replicas = 0
		}
		c.share(tier, held-going, func(at *candidate) int64 { return int64(at.assigned) })
	}
}

// share adds replicas to clusters by their room, which is enough. To aggregate, as few clusters as possible get any.
func (c *cycle) share(tier []*candidate, replicas int64, room func(*candidate) int64) {
	if replicas == 0 {
		return
	}
	if c.strategy == aggregated {
		tier = c.fewest(tier, replicas, room)
	}
	c.divide(int32(replicas), tier, func(i int) int64 { return room(tier[i]) })
}

// fewest returns as few clusters as have room: those in use come first, then, if a profile has preferences, the best,
// then the roomiest.
func (c *cycle) fewest(tier []*candidate, replicas int64, room func(*candidate) int64) []*candidate {
	preference := func(at *candidate) int64 {
		if c.request.Profile == nil || c.request.Profile.Clusters == nil {
			return 0
		}
		return at.score
	}
	ordered := slices.Clone(tier)
	slices.SortFunc(ordered, func(a, b *candidate) int {
		return cmp.Or(-cmp.Compare(min(a.replicas, 1), min(b.replicas, 1)), -cmp.Compare(preference(a), preference(b)), -cmp.Compare(room(a), room(b)), cmp.Compare(a.position, b.position))
	})
	for i, at := range ordered {
		if replicas -= room(at); replicas <= 0 {
			return ordered[:i+1]
		}
	}
	return ordered
}
