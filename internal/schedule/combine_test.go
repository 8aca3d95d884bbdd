package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestBestGroups compares with an exhaustive search.
func TestBestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var groups []group
		for i := range rapid.IntRange(1, 7).Draw(t, "groups") {
			groups = append(groups, group{
				name:     fmt.Sprintf("g%d", i),
				clusters: make([]*candidate, rapid.IntRange(1, 4).Draw(t, "clusters")),
				weight:   rapid.Int64Range(0, 4).Draw(t, "weight"),
			})
		}
		least := rapid.IntRange(1, len(groups)).Draw(t, "least")
		most := rapid.IntRange(least, len(groups)).Draw(t, "most")
		clusters := rapid.IntRange(1, 12).Draw(t, "wanted")
		want := nameAll(listGroups(groups, least, most, clusters))
		if got := nameAll(bestGroups(groups, least, most, clusters)); got != want {
			t.Fatalf("selected %q, want %q", got, want)
		}
		taken := takeGroups(groups, least, most, clusters)
		if (taken == nil) != (want == "") || len(taken) > most {
			t.Fatalf("takeGroups() = %q, want %q", nameAll(taken), want)
		}
	})
}

func nameAll(groups []group) string {
	var all []string
	for i := range groups {
		all = append(all, groups[i].name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestBestGroupsOfMany checks that large inputs finish quickly.
func TestBestGroupsOfMany(t *testing.T) {
	var groups []group
	for i := range 2000 {
		groups = append(groups, group{name: fmt.Sprint(i), clusters: make([]*candidate, 1+i%3), weight: int64(i % 7)})
	}
	if got := len(bestGroups(groups, 900, 1500, 1400)); got < 900 || got > 1500 {
		t.Fatalf("selected %d groups", got)
	}
	if got := bestGroups(groups, 900, 1000, 3000); got != nil {
		t.Fatalf("selected %d groups with too few clusters", len(got))
	}
}

type path struct {
	indexes          []int
	weight, clusters int64
}

func listGroups(groups []group, least, most, clusters int) []group {
	ordered := slices.Clone(groups)
	slices.SortFunc(ordered, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.clusters), len(b.clusters)), cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
	})
	byWeight := func(a, b int) int {
		return cmp.Or(cmp.Compare(ordered[b].weight, ordered[a].weight), cmp.Compare(ordered[a].name, ordered[b].name))
	}
	var paths []path
	var descend func(at path, from int)
	descend = func(at path, from int) {
		if len(at.indexes) >= least && int(at.clusters) >= clusters {
			at.indexes = slices.SortedFunc(slices.Values(at.indexes), byWeight)
			paths = append(paths, at)
			return
		}
		if len(at.indexes) == most {
			return
		}
		for i := from; i < len(ordered); i++ {
			next := append(slices.Clone(at.indexes), i)
			descend(path{next, at.weight + ordered[i].weight, at.clusters + int64(len(ordered[i].clusters))}, i+1)
		}
	}
	descend(path{}, 0)
	if len(paths) == 0 {
		return nil
	}
	slices.SortStableFunc(paths, func(a, b path) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.clusters, a.clusters))
	})
	best := paths[0]
	for _, other := range paths[1:] {
		if len(other.indexes) < len(best.indexes) && slices.Equal(other.indexes, best.indexes[:len(other.indexes)]) {
			best = other
		}
	}
	var selected []group
	for _, i := range best.indexes {
		selected = append(selected, ordered[i])
	}
	return selected
}
