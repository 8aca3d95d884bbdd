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
	case c.sets || c.strategy == duplicated || c.spec.Replicas <= 0:
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
	tiers := byTier(selected)
	switch {
	case c.request.Fresh:
		for _, at := range selected {
			at.replicas = 0
		}
		return c.grow(tiers, wanted, (*candidate).capacity)
	case assigned < wanted:
		return c.grow(tiers, wanted-assigned, func(at *candidate) int64 { return at.available })
	case assigned > wanted:
		c.shrink(tiers, assigned-wanted)
	}
	return nil
}

func byTier(selected []*candidate) [][]*candidate {
	var tiers [][]*candidate
	for _, at := range selected {
		for at.tier >= len(tiers) {
			tiers = append(tiers, nil)
		}
		tiers[at.tier] = append(tiers[at.tier], at)
	}
	return tiers
}

// grow fills tier by tier.
func (c *cycle) grow(tiers [][]*candidate, missing int64, room func(*candidate) int64) *Failure {
	rooms, total := make([]int64, len(tiers)), int64(0)
	for i, tier := range tiers {
		c.estimate(tier)
		for _, at := range tier {
			rooms[i] += room(at)
		}
		total += rooms[i]
	}
	if total < missing {
		return unschedulable("clusters have room for %d of %d more replicas", total, missing)
	}
	for i, tier := range tiers {
		here := min(missing, rooms[i])
		c.share(tier, here, room)
		missing -= here
	}
	return nil
}

// shrink empties the tiers from the last on.
func (c *cycle) shrink(tiers [][]*candidate, excess int64) {
	for _, tier := range slices.Backward(tiers) {
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

// share adds replicas to the clusters of a tier by their room, which is enough. To aggregate, as few clusters as
// possible get any: first those in use, then the roomiest.
func (c *cycle) share(tier []*candidate, replicas int64, room func(*candidate) int64) {
	if replicas == 0 {
		return
	}
	if c.strategy == aggregated {
		tier = fewest(tier, replicas, room)
	}
	c.divide(int32(replicas), tier, func(i int) int64 { return room(tier[i]) })
}

func fewest(tier []*candidate, replicas int64, room func(*candidate) int64) []*candidate {
	ordered := slices.Clone(tier)
	slices.SortFunc(ordered, func(a, b *candidate) int {
		return cmp.Or(-cmp.Compare(min(a.replicas, 1), min(b.replicas, 1)), -cmp.Compare(room(a), room(b)), cmp.Compare(a.position, b.position))
	})
	for i, at := range ordered {
		if replicas -= room(at); replicas <= 0 {
			return ordered[:i+1]
		}
	}
	return ordered
}
