package schedule

import (
	"cmp"
	"slices"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
)

// strategy is how replicas are divided among clusters.
type strategy int

const (
	duplicated strategy = iota
	static
	dynamic
	aggregated
)

// byCapacity reports whether the free capacity of clusters decides the division.
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

// Divided reports whether a placement divides replicas among clusters.
func Divided(placement *policyv1alpha1.Placement) bool {
	return placement.ReplicaScheduling != nil && placement.ReplicaScheduling.ReplicaSchedulingType != policyv1alpha1.ReplicaSchedulingTypeDuplicated
}

// assign sets the replicas of each selected cluster.
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

// assignByWeight divides all replicas by static weights. The weight of a cluster is the highest of the rules that
// match it. If no rule matches any cluster, all weights are equal.
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

// divide adds replicas to clusters in proportion to their weights.
func (c *cycle) divide(replicas int32, clusters []*candidate, weight func(int) int64) {
	claimants := make(queue, len(clusters))
	for i, at := range clusters {
		claimants[i] = claimant{name: at.cluster.Name, weight: uint64(max(0, weight(i))), position: i}
	}
	for _, claimant := range apportion(replicas, claimants, string(c.request.UID)) {
		clusters[claimant.position].replicas += int32(claimant.seats)
	}
}

// assignByCapacity divides replicas by the clusters' capacity. Existing replicas stay where they are if possible.
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

// byStep groups clusters by step.
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

// grow adds replicas step by step. With a profile, existing capacity is used before clusters have to grow.
func (c *cycle) grow(steps [][]*candidate, missing int64, free func(*candidate) int64) *Failure {
	total := int64(0)
	for _, step := range steps {
		c.estimate(step)
		total += sum(step, free)
	}
	pending := max(0, missing-total)
	var waiting *candidate
	if pending > 0 {
		if waiting = c.pendingCluster(steps); waiting == nil {
			return unschedulable("Clusters available replicas %d are not enough to schedule. %d more are needed.", total, missing)
		}
	}
	missing -= pending
	for _, step := range steps {
		missing -= c.fill(step, missing, free)
	}
	if waiting != nil {
		waiting.replicas += int32(pending)
		c.note("%d replicas fit no cluster and stay pending in cluster %s, which can grow", pending, waiting.cluster.Name)
	}
	return nil
}

// fill adds replicas to the clusters of one step and returns how many.
func (c *cycle) fill(step []*candidate, missing int64, free func(*candidate) int64) int64 {
	if c.request.Profile == nil {
		here := min(missing, sum(step, free))
		c.share(step, here, free)
		return here
	}
	existing := func(at *candidate) int64 { return max(0, free(at)-at.growth) }
	here := min(missing, sum(step, existing))
	c.share(step, here, existing)
	grown := func(at *candidate) int64 { return min(free(at), at.growth) }
	growing := min(missing-here, sum(step, grown))
	if growing > 0 && c.aggregatesGrowth() {
		step = c.fewest(step, growing, grown)
	}
	c.share(step, growing, grown)
	return here + growing
}

// aggregatesGrowth reports whether replicas that need cluster growth go to as few clusters as possible.
func (c *cycle) aggregatesGrowth() bool {
	return c.request.Profile != nil && c.request.Profile.Clusters != nil && c.request.Profile.Clusters.GatherPending
}

// pendingCluster returns the cluster in which replicas that fit nowhere stay pending, or nil if none can grow.
func (c *cycle) pendingCluster(steps [][]*candidate) *candidate {
	if !c.aggregatesGrowth() {
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

// shrink removes replicas, beginning with the last step.
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

// share adds replicas to clusters by their capacity, which must be sufficient. An aggregated division uses as few
// clusters as possible.
func (c *cycle) share(tier []*candidate, replicas int64, free func(*candidate) int64) {
	if replicas == 0 {
		return
	}
	if c.strategy == aggregated {
		tier = c.fewest(tier, replicas, free)
	}
	c.divide(int32(replicas), tier, func(i int) int64 { return free(tier[i]) })
}

// fewest returns as few clusters as have enough capacity: clusters in use first, then by score if there is a
// profile, then by capacity.
func (c *cycle) fewest(tier []*candidate, replicas int64, free func(*candidate) int64) []*candidate {
	preference := func(at *candidate) int64 {
		if c.request.Profile == nil || c.request.Profile.Clusters == nil {
			return 0
		}
		return at.score
	}
	ordered := slices.Clone(tier)
	slices.SortFunc(ordered, func(a, b *candidate) int {
		return cmp.Or(-cmp.Compare(min(a.replicas, 1), min(b.replicas, 1)), -cmp.Compare(preference(a), preference(b)), -cmp.Compare(free(a), free(b)), cmp.Compare(a.position, b.position))
	})
	for i, at := range ordered {
		if replicas -= free(at); replicas <= 0 {
			return ordered[:i+1]
		}
	}
	return ordered
}
