package schedule

import (
	"cmp"
	"slices"
	"strings"
)

// bestGroups selects groups that together have at least the given number of clusters.
//
// Groups are added by size until there are enough groups and clusters. Of all selections found this way, the one
// with the highest weight wins, then the one with the most clusters, then the first. If the heaviest groups of the
// winner are a selection by themselves, they are used alone, unless that would leave out groups in use.
//
// The number of selections can be exponential. Selections with the same number of groups and clusters have the same
// continuations, so only the best of them is kept.
func bestGroups(groups []group, least, most, clusters int) []group {
	ordered := slices.Clone(groups)
	slices.SortFunc(ordered, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.clusters), len(b.clusters)), -cmp.Compare(a.weight, b.weight), strings.Compare(a.name, b.name))
	})
	// Every group has a cluster, so more groups are never needed.
	longest := min(most, max(least, clusters))
	width := clusters + 1
	if clusters <= least || len(ordered)*longest*width > maxCombinations {
		return takeGroups(ordered, least, most, clusters)
	}
	open := make([]*combination, (longest+1)*width)
	open[0] = &combination{}
	var best *combination
	for i := range ordered {
		for count := min(i, longest-1); count >= 0; count-- {
			for size := range width {
				from := open[count*width+size]
				if from == nil {
					continue
				}
				next := from.with(i, &ordered[i])
				at := &best
				if next.count < least || next.clusters < clusters {
					at = &open[next.count*width+min(next.clusters, clusters)]
				}
				if *at == nil || next.betterThan(*at) {
					*at = next
				}
			}
		}
	}
	if best == nil {
		return nil
	}
	return best.heaviest(ordered, least, clusters)
}

// maxCombinations bounds the cost of a decision for any placement.
const maxCombinations = 1 << 20

// takeGroups takes the heaviest groups until there are enough or, if that exceeds the limit, the largest. The
// result is optimal if every selection has enough clusters, and an approximation otherwise.
func takeGroups(ordered []group, least, most, clusters int) []group {
	for _, order := range []func(a, b group) int{heavier, larger} {
		taken, size := 0, 0
		slices.SortStableFunc(ordered, order)
		for taken < min(most, len(ordered)) && (taken < least || size < clusters) {
			size += len(ordered[taken].clusters)
			taken++
		}
		if taken >= least && size >= clusters {
			return ordered[:taken]
		}
	}
	return nil
}

func heavier(a, b group) int {
	return cmp.Or(-cmp.Compare(a.weight, b.weight), larger(a, b))
}

func larger(a, b group) int { return -cmp.Compare(len(a.clusters), len(b.clusters)) }

// combination is a selection of groups: the last one and its predecessors.
type combination struct {
	before          *combination
	index           int
	count, clusters int
	weight          int64
}

func (c *combination) with(index int, added *group) *combination {
	return &combination{before: c, index: index, count: c.count + 1, clusters: c.clusters + len(added.clusters), weight: c.weight + added.weight}
}

func (c *combination) betterThan(other *combination) bool {
	if c.weight != other.weight {
		return c.weight > other.weight
	}
	if c.clusters != other.clusters {
		return c.clusters > other.clusters
	}
	return slices.Compare(c.indexes(), other.indexes()) < 0
}

func (c *combination) indexes() []int {
	indexes := make([]int, c.count)
	for ; c.count > 0; c = c.before {
		indexes[c.count-1] = c.index
	}
	return indexes
}

// heaviest returns the fewest of the heaviest groups that are a selection by themselves.
func (c *combination) heaviest(ordered []group, least, clusters int) []group {
	indexes := c.indexes()
	slices.SortFunc(indexes, func(a, b int) int {
		return cmp.Or(-cmp.Compare(ordered[a].weight, ordered[b].weight), strings.Compare(ordered[a].name, ordered[b].name))
	})
	selected := make([]group, 0, len(indexes))
	size, last := 0, 0
	for _, index := range indexes {
		selected = append(selected, ordered[index])
		size += len(ordered[index].clusters)
		last = max(last, index)
		enough := len(selected) >= least && size >= clusters
		// The last group must have been necessary.
		if enough && (len(selected) == least || size-len(ordered[last].clusters) < clusters) && !anyInUse(ordered, indexes[len(selected):]) {
			break
		}
	}
	return selected
}

func anyInUse(ordered []group, indexes []int) bool {
	return slices.ContainsFunc(indexes, func(index int) bool { return ordered[index].inUse })
}
