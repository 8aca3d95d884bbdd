package schedule

import (
	"slices"
)

// groupSearch selects groups of clusters, field by field, and then clusters of the selected groups. What it selects
// for one field narrows what the next has to choose from.
type groupSearch struct {
	c *cycle
	// tries bounds how often a selection is given up for a wider one.
	tries int
}

const (
	maxTries = 64
	// groupUnit makes a replica or cluster that a group has room for count more than any score.
	groupUnit = 1000
)

// run selects, first among the groups in use: to combine several fields takes trying, and what was found by it is not
// to be given up for another find.
func (s *groupSearch) run(eligible []*candidate) ([]*candidate, *Failure) {
	if len(s.c.spread.fields) > 1 && !s.c.request.Fresh {
		if selected := s.stay(eligible); selected != nil {
			return selected, nil
		}
	}
	return s.level(0, eligible)
}

// stay selects clusters of the groups in use, nil if that is not good enough.
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

// level selects groups of the i-th field, as few as will do, and goes on to the next.
func (s *groupSearch) level(i int, scope []*candidate) ([]*candidate, *Failure) {
	if i == len(s.c.spread.fields) {
		return s.finish(scope)
	}
	f := &s.c.spread.fields[i]
	groups := s.groups(f, scope)
	if len(groups) < f.least {
		return nil, unschedulable("spreadConstraints ask for %d %s, %d may be used", f.least, f.what, len(groups))
	}
	most := min(f.most, s.c.spread.cluster.most, len(groups))
	if f.least > most {
		return nil, unschedulable("spreadConstraints ask for at least %d %s, but allow only %d groups or clusters", f.least, f.what, most)
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
		failure = unschedulable("spreadConstraints could not be met together in %d tries", maxTries)
	default:
		failure = unschedulable("spreadConstraints ask for %d clusters in at most %d %s, which have fewer", s.c.spread.cluster.least, most, f.what)
	}
	return nil, failure
}

// group is the clusters with the same value of a field.
type group struct {
	name     string
	clusters []*candidate
	weight   int64
	// inUse tells that the template is there and may stay.
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

// weigh tells how good a group is. Where replicas are divided it is better the more of its share it has room for;
// where they are repeated, the more of its clusters have room for all. Among equals the score of its clusters counts.
func (s *groupSearch) weigh(clusters []*candidate, least int) int64 {
	room, score, counted := int64(0), int64(0), int64(0)
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
		room += at.capacity()
		score += at.score
		counted++
		if room >= share {
			return share*groupUnit + score/counted
		}
	}
	return room*groupUnit + score/counted
}

// within returns the clusters that are in no other groups than the given.
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

// finish takes the best cluster of each group, and then the best of the others, up to the most that are allowed.
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
			return nil, unschedulable("spreadConstraints cannot be met together: %s", covered.lacking())
		}
		others = slices.DeleteFunc(slices.Clone(scope), func(at *candidate) bool { return slices.Contains(chosen, at) })
	}
	chosen = append(chosen, others[:min(len(others), limits.most-len(chosen))]...)
	if len(chosen) < limits.least {
		return nil, unschedulable("spreadConstraints ask for %d clusters, the groups chosen for them have %d", limits.least, len(chosen))
	}
	return chosen, nil
}

// search looks for few clusters that are in enough groups of every field, where taking the best of each group took
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
