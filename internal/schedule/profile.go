package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// HourlyPrice returns the price of one replica in a cluster per hour, averaged over the purchase shares of its
// capacity. For a template of several components it is the price of a set.
func HourlyPrice(profile *cellplanev1alpha1.ClusterProfile, spec *workv1alpha2.ResourceBindingSpec) float64 {
	if profile == nil || profile.Spec.Price == nil {
		return 0
	}
	if !placesSets(spec) {
		if spec.ReplicaRequirements == nil {
			return 0
		}
		return priceOf(profile.Spec.Price, spec.ReplicaRequirements.ResourceRequest)
	}
	sum := 0.0
	for i := range spec.Components {
		if required := spec.Components[i].ReplicaRequirements; required != nil {
			sum += float64(spec.Components[i].Replicas) * priceOf(profile.Spec.Price, required.ResourceRequest)
		}
	}
	return sum
}

func priceOf(price *cellplanev1alpha1.ClusterPrice, requests corev1.ResourceList) float64 {
	sum := 0.0
	for name, perHour := range price.PerHour {
		if request, asked := requests[name]; asked {
			sum += perHour.AsApproximateFloat64() * pricedUnits(name, request.AsApproximateFloat64())
		}
	}
	return sum * shareFactor(price.Shares)
}

// pricedUnits converts bytes to GiB.
func pricedUnits(name corev1.ResourceName, amount float64) float64 {
	switch name {
	case corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage:
		return amount / (1 << 30)
	default:
		return amount
	}
}

// shareFactor returns the average price as a fraction of the list price.
func shareFactor(shares []cellplanev1alpha1.PurchaseShare) float64 {
	rest, sum := 100.0, 0.0
	for i := range shares {
		percent := float64(shares[i].Percent)
		rest -= percent
		sum += percent * float64(ptr.Deref(shares[i].PricePercent, 100))
	}
	return (sum + max(0, rest)*100) / 10_000
}

// elastic reports whether the cluster can grow.
func (m *member) elastic() bool { return m.profile != nil && m.profile.Spec.Elasticity != nil }

// growable reports whether an elastic cluster is below its maximum size.
func (m *member) growable() bool {
	if !m.elastic() {
		return false
	}
	largest := int64(m.size())
	for i := range m.profile.Spec.Elasticity.NodeGroups {
		largest += int64(m.profile.Spec.Elasticity.NodeGroups[i].MaxNodes)
	}
	if size := m.profile.Spec.Size; size != nil && size.MaxNodes != nil {
		largest = min(largest, int64(*size.MaxNodes))
	}
	return int64(m.size()) < largest
}

// size returns the number of nodes.
func (m *member) size() int32 {
	if m.cluster.Status.NodeSummary == nil {
		return 0
	}
	return m.cluster.Status.NodeSummary.TotalNum
}

// spotPercent returns the share of spot capacity.
func (m *member) spotPercent() int32 {
	if m.profile == nil || m.profile.Spec.Price == nil {
		return 0
	}
	for _, share := range m.profile.Spec.Price.Shares {
		if share.Option == cellplanev1alpha1.PurchaseSpot {
			return share.Percent
		}
	}
	return 0
}

// latency returns the time the cluster needs to grow, in seconds.
func (m *member) latency() float64 {
	if !m.elastic() || m.profile.Spec.Elasticity.ScaleUpLatency == nil {
		return 0
	}
	return m.profile.Spec.Elasticity.ScaleUpLatency.Seconds()
}

// withinSize excludes clusters with more nodes than their profile allows, unless they hold the template.
func withinSize(_ *cycle, at *candidate) string {
	if at.held || at.profile == nil || at.profile.Spec.Size == nil || at.profile.Spec.Size.MaxNodes == nil {
		return ""
	}
	if at.size() > *at.profile.Spec.Size.MaxNodes {
		return "cluster(s) had more nodes than their profile allows"
	}
	return ""
}

// withinSpot excludes clusters with more spot capacity than the profile allows.
func withinSpot(c *cycle, at *candidate) string {
	if c.sites == nil || c.sites.MaxSpotPercent == nil || at.spotPercent() <= *c.sites.MaxSpotPercent {
		return ""
	}
	return "cluster(s) had a larger share of spot capacity than the profile allows"
}

// notDraining excludes clusters of drained sites, unless they hold the template.
func notDraining(c *cycle, at *candidate) string {
	if c.sites == nil || at.held || !c.draining(at) {
		return ""
	}
	return "cluster(s) were in a site that is being drained"
}

// scorersOf returns the scorers of a profile.
func scorersOf(profile *cellplanev1alpha1.SchedulingProfileSpec) []scorer {
	if profile == nil || profile.Clusters == nil || len(profile.Clusters.Scores) == 0 {
		return defaultScorers
	}
	weights := map[string]int32{locality{}.Name(): 1}
	for _, score := range profile.Clusters.Scores {
		weights[score.Name] = score.Weight
	}
	var wanted []scorer
	for _, known := range []scorer{locality{}, sizeScorer{}, freeScorer{}, priceScorer{}} {
		if weight := weights[known.Name()]; weight > 0 {
			wanted = append(wanted, weighted{known, int64(weight)})
		}
	}
	return wanted
}

// weighted is a scorer with a weight.
type weighted struct {
	scorer
	weight int64
}

// Score implements scorer.
func (w weighted) Score(c *cycle, at *candidate) int64 { return w.weight * w.scorer.Score(c, at) }

// sizeScorer prefers clusters below their target size.
type sizeScorer struct{}

// Name implements scorer.
func (sizeScorer) Name() string { return "ClusterSize" }

// Score implements scorer.
func (sizeScorer) Score(_ *cycle, at *candidate) int64 {
	if at.profile == nil || at.profile.Spec.Size == nil || at.profile.Spec.Size.TargetNodes == nil {
		return maxScore / 2
	}
	target := int64(*at.profile.Spec.Size.TargetNodes)
	return max(0, min(maxScore, maxScore*(target-int64(at.size()))/target))
}

// freeScorer prefers clusters with the largest share of free CPU and memory.
type freeScorer struct{}

// Name implements scorer.
func (freeScorer) Name() string { return "FreeResources" }

// Score implements scorer.
func (freeScorer) Score(_ *cycle, at *candidate) int64 {
	sum, counted := int64(0), int64(0)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if total := at.member.resources.total[name]; total > 0 {
			sum += int64(maxScore * float64(at.member.resources.free[name]) / float64(total))
			counted++
		}
	}
	return sum / max(counted, 1)
}

// priceScorer prefers clusters with a low price for the template.
type priceScorer struct{}

// Name implements scorer.
func (priceScorer) Name() string { return "Price" }

// Score implements scorer.
func (priceScorer) Score(c *cycle, at *candidate) int64 {
	if c.highestPrice == 0 {
		return maxScore
	}
	return int64(math.Round(maxScore * (1 - HourlyPrice(at.profile, c.spec)/c.highestPrice)))
}
