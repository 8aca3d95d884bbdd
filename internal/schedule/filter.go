package schedule

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/api/names"
)

// filter drops clusters that are not eligible for a template.
type filter interface {
	// Name is the name of the filter in explanations.
	Name() string
	// Filter returns why the cluster is not eligible, in words that follow a number of clusters; empty if it is.
	Filter(*cycle, *candidate) string
}

// filterFunc is a stateless filter.
type filterFunc struct {
	name   string
	reason func(*cycle, *candidate) string
}

// Name implements filter.
func (f filterFunc) Name() string { return f.name }

// Filter implements filter.
func (f filterFunc) Filter(c *cycle, at *candidate) string { return f.reason(c, at) }

// defaultFilters run in this order. The first objection is the reason.
var defaultFilters = []filter{
	filterFunc{"ClusterRemoval", staying},
	filterFunc{"ClusterAffinity", inTier},
	filterFunc{"ClusterEviction", notEvicting},
	filterFunc{"TaintToleration", tolerated},
	filterFunc{"APIEnablement", enabled},
	filterFunc{"SpreadConstraint", hasFields},
	filterFunc{"WorkloadAffinity", withGroup},
	filterFunc{"WorkloadAntiAffinity", apartFromGroup},
	filterFunc{"ClusterSize", withinSize},
	filterFunc{"SpotShare", withinSpot},
	filterFunc{"SiteDrain", notDraining},
}

func staying(_ *cycle, at *candidate) string {
	if at.cluster.DeletionTimestamp != nil {
		return "cluster(s) being removed"
	}
	return ""
}

// inTier sets the first tier whose affinity matches the cluster.
func inTier(c *cycle, at *candidate) string {
	for tier := range c.tiers.tiers {
		if c.tiers.tiers[tier].Matches(at.cluster) {
			at.tier = tier
			return ""
		}
	}
	return "cluster(s) did not match the placement cluster affinity constraint"
}

func notEvicting(_ *cycle, at *candidate) string {
	if at.evicting {
		return "cluster(s) is in the process of eviction"
	}
	return ""
}

// tolerated accepts clusters that hold the template already: their taints are handled by eviction.
func tolerated(c *cycle, at *candidate) string {
	if at.held || len(at.taints) == 0 {
		return ""
	}
	if taint := untolerated(c.placement.ClusterTolerations, at.taints); taint != nil {
		return fmt.Sprintf("cluster(s) had untolerated taint {%s}", taint.ToString())
	}
	return ""
}

// enabled accepts clusters that hold the template already if their list of served kinds may be incomplete.
func enabled(c *cycle, at *candidate) string {
	if c.serving[at.position] || at.held && !at.completeAPIs {
		return ""
	}
	return "cluster(s) did not have the API resource"
}

// hasFields drops clusters that belong to no group of a spread constraint.
func hasFields(c *cycle, at *candidate) string {
	for i := range c.spread.fields {
		if len(c.spread.fields[i].keys(at.member)) == 0 {
			return c.spread.fields[i].missing
		}
	}
	return ""
}

// withGroup keeps the templates of an affinity group together. The first one may go anywhere.
func withGroup(c *cycle, at *candidate) string {
	groups := c.spec.WorkloadAffinityGroups
	if groups == nil || groups.AffinityGroup == "" || len(c.request.AffinityClusters) == 0 || at.together {
		return ""
	}
	return "cluster(s) did not hold the workload affinity group"
}

func apartFromGroup(c *cycle, at *candidate) string {
	groups := c.spec.WorkloadAffinityGroups
	if groups == nil || groups.AntiAffinityGroup == "" || !at.apart {
		return ""
	}
	return "cluster(s) held the workload anti-affinity group"
}

// untolerated returns a taint that is not tolerated, or nil.
func untolerated(tolerations []corev1.Toleration, taints []corev1.Taint) *corev1.Taint {
	for i := range taints {
		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return tolerates(&t, &taints[i]) }) {
			return &taints[i]
		}
	}
	return nil
}

func tolerates(toleration *corev1.Toleration, taint *corev1.Taint) bool {
	if toleration.Effect != "" && toleration.Effect != taint.Effect {
		return false
	}
	if toleration.Key != "" && toleration.Key != taint.Key {
		return false
	}
	switch toleration.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return toleration.Key != "" && toleration.Value == taint.Value
	default:
		return false
	}
}

// noClusterFit returns a failure with the number of excluded clusters by reason. Its wording and order are Karmada's.
func (c *cycle) noClusterFit() *Failure {
	why := map[string]int{}
	for i := range c.candidates {
		why[c.candidates[i].reason]++
	}
	var parts []string
	for reason, n := range why {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	message := fmt.Sprintf("0/%d clusters are available", len(c.candidates))
	if len(parts) > 0 {
		message += ": " + strings.Join(parts, ", ")
	}
	return &Failure{Reason: names.ReasonNoClusterFit, Message: message + "."}
}
