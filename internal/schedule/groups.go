package schedule

import (
	"slices"
)

// groupSearch selects groups of clusters, field by field, and then clusters of the selected groups. The groups
// selected for one field restrict the choice for the next.
type groupSearch struct {
	c *cycle
	// tries bounds the number of selections tried.
	tries int
}

const (
	maxTries = 64
	// groupUnit makes capacity weigh more than any score.
	groupUnit = 1000
)

// run tries the groups in use first. A search over several fields may have several results, and an existing one
// must not be replaced by another.
func (s *groupSearch) run(eligible []*candidate) ([]*candidate, *Failure) {
	if len(s.c.spread.fields) > 1 && !s.c.request.Fresh {
		if selected := s.stay(eligible); selected != nil {
			return selected, nil
		}
	}
	return s.level(0, eligible)
}

// stay selects clusters of the groups in use, or returns nil if they do not suffice.
func (s *groupSearch) stay(scope []*candidate) []*candidate {
	for i := range s.c.spread.fields {
		f := &s.c.spread.fields[i]
		inUse := slices.DeleteFunc(s.groups(f, scope), func(g group) bool { return !g.inUse })
		if len(inUse) < f.least || len(inUse) > f.most {
			return nil
		}
		scope = within(f, scope, inUse)
	}
	selected, failure := s.finish(scope)
	if failure != nil || s.c.strategy.byCapacity() && capacityOf(selected) < int64(s.c.spec.Replicas) {
		return nil
	}
	return selected
}

// level selects as few groups of the i-th field as possible and continues with the next field.
func (s *groupSearch) level(i int, scope []*candidate) ([]*candidate, *Failure) {
	if i == len(s.c.spread.fields) {
		return s.finish(scope)
	}
	f := &s.c.spread.fields[i]
	groups := s.groups(f, scope)
	if len(groups) < f.least {
		return nil, impossible("the number of feasible %s is less than spreadConstraint.MinGroups: %d of %d", f.feasible(), len(groups), f.least)
	}
	most := min(f.most, s.c.spread.cluster.most, len(groups))
	if f.least > most {
		return nil, impossible("spreadConstraints require at least %d %s, but allow only %d", f.least, f.what, most)
	}
	var failure *Failure
	for least := f.least; least <= most && s.tries > 0; s.tries-- {
		chosen := bestGroups(groups, least, most, s.c.spread.cluster.least)
		if chosen == nil {
			break
		}
		selected, why := s.level(i+1, within(f, scope, chosen))
		if why == nil {
			return selected, nil
		}
		failure = why
		least = len(chosen) + 1
	}
	switch {
	case failure != nil:
	case s.tries == 0:
		failure = impossible("found no clusters that satisfy all spreadConstraints in %d tries", maxTries)
	default:
		failure = impossible("the number of clusters is less than the cluster spreadConstraint.MinGroups: at most %d %s have fewer than %d", most, f.what, s.c.spread.cluster.least)
	}
	return nil, failure
}

// group is the set of clusters with the same value of a field.
type group struct {
	name     string
	clusters []*candidate
	weight   int64
	// inUse means that the template is in the group and may stay.
	inUse bool
}

func (s *groupSearch) groups(f *field, scope []*candidate) []group {
	var groups []group
	index := map[string]int{}
	for _, at := range scope {
		for _, key := range f.keys(at.member) {
			i, known := index[key]
			if !known {
				i = len(groups)
				index[key] = i
				groups = append(groups, group{name: key})
			}
			groups[i].clusters = append(groups[i].clusters, at)
			groups[i].inUse = groups[i].inUse || at.held && !s.c.request.Fresh
		}
	}
	for i := range groups {
		groups[i].weight = s.weigh(groups[i].clusters, f.least)
	}
	return groups
}

// weigh returns the weight of a group. For divided replicas it grows with the part of the group's share that fits;
// for duplicated replicas, with the number of clusters that can hold all replicas. Scores break ties.
func (s *groupSearch) weigh(clusters []*candidate, least int) int64 {
	capacity, score, counted := int64(0), int64(0), int64(0)
	if s.c.strategy == duplicated {
		for _, at := range clusters {
			if at.capacity() >= int64(s.c.spec.Replicas) {
				counted++
				score += at.score
			}
		}
		return counted*groupUnit + score/max(counted, 1)
	}
	share := int64(s.c.spec.Replicas)/int64(least) + 1
	for _, at := range clusters {
		capacity += at.capacity()
		score += at.score
		counted++
		if capacity >= share {
			return share*groupUnit + score/counted
		}
	}
	return capacity*groupUnit + score/counted
}

// within returns the clusters that belong to the given groups only.
func within(f *field, scope []*candidate, groups []group) []*candidate {
	wanted := make(map[string]bool, len(groups))
	for i := range groups {
		wanted[groups[i].name] = true
	}
	var inside []*candidate
	for _, at := range scope {
		if !slices.ContainsFunc(f.keys(at.member), func(key string) bool { return !wanted[key] }) {
			inside = append(inside, at)
		}
	}
	return inside
}

// finish takes the best cluster of each group, then the best of the others up to the limit.
func (s *groupSearch) finish(scope []*candidate) ([]*candidate, *Failure) {
	limits, fields := s.c.spread.cluster, s.c.spread.fields
	covered := newCover(fields)
	var chosen, others []*candidate
	for _, at := range scope {
		if len(chosen) < limits.most && covered.add(at) {
			chosen = append(chosen, at)
		} else {
			others = append(others, at)
		}
	}
	if !covered.enough() {
		if chosen = s.search(scope); chosen == nil {
			return nil, impossible("spreadConstraints cannot be satisfied together: %s", covered.lacking())
		}
		others = slices.DeleteFunc(slices.Clone(scope), func(at *candidate) bool { return slices.Contains(chosen, at) })
	}
	chosen = append(chosen, others[:min(len(others), limits.most-len(chosen))]...)
	if len(chosen) < limits.least {
		return nil, impossible("the number of clusters is less than the cluster spreadConstraint.MinGroups: %d of %d", len(chosen), limits.least)
	}
	return chosen, nil
}

// search looks for few clusters that cover enough groups of every field, after taking the best of each group took
// too many.
func (s *groupSearch) search(scope []*candidate) []*candidate {
	budget := 10_000
	var found []*candidate
	var extend func(from int, chosen []*candidate) bool
	extend = func(from int, chosen []*candidate) bool {
		covered := newCover(s.c.spread.fields)
		for _, at := range chosen {
			covered.add(at)
		}
		if covered.enough() {
			found = slices.Clone(chosen)
			return true
		}
		if len(chosen) == s.c.spread.cluster.most {
			return false
		}
		for i := from; i < len(scope) && budget > 0; i++ {
			budget--
			if extend(i+1, append(chosen, scope[i])) {
				return true
			}
		}
		return false
	}
	extend(0, nil)
	return found
}
