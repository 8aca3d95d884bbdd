package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// spread holds the parsed spread constraints of a placement.
type spread struct {
	// given reports whether there are any.
	given   bool
	cluster bounds
	fields  []field // from the widest to the narrowest
}

// bounds limit the number of groups.
type bounds struct{ least, most int }

// field groups clusters by a field or a label.
type field struct {
	bounds
	what    string // name of the groups in messages
	missing string // reason for excluding a cluster that belongs to no group
	order   int
	keys    func(*member) []string
}

// feasible names the groups as Karmada does in its messages.
func (f *field) feasible() string {
	if f.what == "regions" {
		return "region"
	}
	return f.what
}

func newSpread(constraints []policyv1alpha1.SpreadConstraint) spread {
	s := spread{given: len(constraints) > 0, cluster: bounds{1, math.MaxInt}}
	for i := range constraints {
		constraint := &constraints[i]
		limits := bounds{max(1, constraint.MinGroups), math.MaxInt}
		if constraint.MaxGroups > 0 {
			limits.most = constraint.MaxGroups
		}
		grouping, byCluster := groupingOf(constraint)
		if byCluster {
			s.cluster = s.cluster.and(limits)
			continue
		}
		if at := slices.IndexFunc(s.fields, func(f field) bool { return f.what == grouping.what }); at >= 0 {
			s.fields[at].bounds = s.fields[at].and(limits)
			continue
		}
		grouping.bounds = limits
		s.fields = append(s.fields, grouping)
	}
	if s.cluster.least <= s.cluster.most {
		for i := range s.fields { // groups come first: each has a cluster
			s.cluster.most = max(s.cluster.most, s.fields[i].least)
		}
	}
	slices.SortStableFunc(s.fields, func(a, b field) int { return cmp.Compare(a.order, b.order) })
	return s
}

func (b bounds) and(other bounds) bounds {
	return bounds{max(b.least, other.least), min(b.most, other.most)}
}

func groupingOf(constraint *policyv1alpha1.SpreadConstraint) (grouping field, byCluster bool) {
	if label := constraint.SpreadByLabel; label != "" {
		return field{
			what: fmt.Sprintf("values of label %q", label), missing: fmt.Sprintf("cluster(s) did not have label %q", label), order: 3,
			keys: func(m *member) []string { return present(m.cluster.Labels[label]) },
		}, false
	}
	switch constraint.SpreadByField {
	case policyv1alpha1.SpreadByFieldProvider:
		return field{what: "providers", missing: "cluster(s) did not have provider property", order: 0, keys: func(m *member) []string { return m.provider }}, false
	case policyv1alpha1.SpreadByFieldRegion:
		return field{what: "regions", missing: "cluster(s) did not have region property", order: 1, keys: func(m *member) []string { return m.region }}, false
	case policyv1alpha1.SpreadByFieldZone:
		return field{what: "zones", missing: "cluster(s) did not have zones property", order: 2, keys: func(m *member) []string { return m.zones }}, false
	default:
		return field{}, true
	}
}

// selectClusters selects the clusters that take part in the division. Without spread constraints, and with static
// weights, these are all eligible clusters.
func (c *cycle) selectClusters(eligible []*candidate) ([]*candidate, *Failure) {
	if c.oneCluster() {
		return c.selectForSet(eligible)
	}
	if !c.workload() {
		eligible = firstTier(eligible)
	}
	if !c.spread.given || c.strategy == static {
		return eligible, nil
	}
	if limits := c.spread.cluster; limits.least > limits.most {
		return nil, impossible("spreadConstraints require at least %d and at most %d clusters", limits.least, limits.most)
	}
	if len(eligible) < c.spread.cluster.least {
		return nil, impossible("the number of feasible clusters is less than spreadConstraint.MinGroups: %d of %d", len(eligible), c.spread.cluster.least)
	}
	c.estimate(eligible)
	rank(eligible)
	if len(c.spread.fields) > 0 {
		search := groupSearch{c: c, tries: maxTries}
		return search.run(eligible)
	}
	if c.strategy == duplicated {
		return eligible[:min(len(eligible), c.spread.cluster.most)], nil
	}
	return c.selectByCapacity(eligible)
}

// firstTier returns the clusters of the first tier that has any: templates without replicas never overflow.
func firstTier(eligible []*candidate) []*candidate {
	first := slices.MinFunc(eligible, func(a, b *candidate) int { return cmp.Compare(a.tier, b.tier) }).tier
	return slices.DeleteFunc(eligible, func(at *candidate) bool { return at.tier != first })
}

// selectByCapacity takes the best clusters. While they lack capacity, it replaces them, from the last on, by those
// with the most.
func (c *cycle) selectByCapacity(ranked []*candidate) ([]*candidate, *Failure) {
	count := min(len(ranked), c.spread.cluster.most)
	chosen, rest := ranked[:count], ranked[count:]
	total, wanted := capacityOf(chosen), int64(c.spec.Replicas)
	for last := count - 1; total < wanted && last >= 0; last-- {
		largest := &chosen[last]
		for i := range rest {
			if rest[i].capacity() > (*largest).capacity() {
				largest = &rest[i]
			}
		}
		total += (*largest).capacity() - chosen[last].capacity()
		chosen[last], *largest = *largest, chosen[last]
	}
	if total < wanted {
		return nil, impossible("no enough resource when selecting %d clusters: available replicas %d of %d", count, total, wanted)
	}
	return chosen, nil
}

func capacityOf(clusters []*candidate) int64 {
	total := int64(0)
	for _, at := range clusters {
		total += at.capacity()
	}
	return total
}
