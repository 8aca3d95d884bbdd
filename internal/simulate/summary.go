package simulate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Summary is the nodes of a class by free resources. Ledgers store summaries.
type Summary struct {
	Class
	Nodes []Alike
}

// Alike is a number of nodes with the same free resources.
type Alike struct {
	Count int32
	Free  corev1.ResourceList
}

// Summarize returns all nodes in a fixed order. If that takes more than the given rows, free resources are rounded
// down, in growing steps. Nodes named by volumes are classes of their own.
func (m *Model) Summarize(rows int) []Summary {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, named := m.summarizedVolumes()
	var counts []map[row]int32
	for _, parts := range []int64{0, 256, 64, 16, 4, 1} {
		counts = m.rows(parts, named)
		total := 0
		for _, alike := range counts {
			total += len(alike)
		}
		if total <= rows {
			break
		}
	}
	var summaries []Summary
	for i, alike := range counts {
		if len(alike) == 0 {
			continue
		}
		s := Summary{Class: m.classes[i].Class}
		for _, r := range slices.SortedFunc(maps.Keys(alike), compareRows) {
			free := amounts{fixed: r.free, other: m.classes[i].others(r.other)}
			s.Nodes = append(s.Nodes, Alike{Count: alike[r], Free: free.list()})
		}
		summaries = append(summaries, s)
	}
	for name := range named {
		if at, known := m.nodeIndex[name]; known && m.nodes[at].class != noClass {
			summaries = append(summaries, m.single(&m.nodes[at]))
		}
	}
	slices.SortFunc(summaries, func(a, b Summary) int { return strings.Compare(a.Name, b.Name) })
	return summaries
}

// single returns the summary of one node, including its hostname label.
func (m *Model) single(n *node) Summary {
	c := &m.classes[n.class]
	s := Summary{Class: c.Class}
	s.Labels = maps.Clone(c.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[corev1.LabelHostname] = n.name
	s.Name = s.Class.name()
	r := c.row(n, 0)
	free := amounts{fixed: r.free, other: c.others(r.other)}
	s.Nodes = []Alike{{Count: 1, Free: free.list()}}
	return s
}

// row is the free resources of a node, with a limited number of extended resources.
type row struct {
	free  [fixed]int64
	other [4]int64
}

func compareRows(a, b row) int {
	return slices.Compare(append(a.free[:], a.other[:]...), append(b.free[:], b.other[:]...))
}

// rows counts the nodes by free resources, except for the given ones.
func (m *Model) rows(parts int64, but map[string]bool) []map[row]int32 {
	counts := make([]map[row]int32, len(m.classes))
	for at := range m.nodes {
		n := &m.nodes[at]
		if n.class == noClass || but[n.name] {
			continue
		}
		if counts[n.class] == nil {
			counts[n.class] = map[row]int32{}
		}
		counts[n.class][m.classes[n.class].row(n, parts)]++
	}
	return counts
}

func (c *class) row(n *node, parts int64) row {
	var r row
	for place, offered := range c.allocatable.fixed {
		r.free[place] = roundDown(offered-n.used.fixed[place], offered, parts)
	}
	for i, name := range c.otherNames() {
		r.other[i] = roundDown(c.allocatable.other[name]-n.used.other[name], c.allocatable.other[name], parts)
	}
	return r
}

func roundDown(free, offered, parts int64) int64 {
	free = max(0, free)
	if parts == 0 || offered < parts {
		return free
	}
	step := offered / parts
	return free / step * step
}

// otherNames returns the extended resources in a summary.
func (c *class) otherNames() []corev1.ResourceName {
	all := slices.Sorted(maps.Keys(c.allocatable.other))
	return all[:min(len(all), len(row{}.other))]
}

func (c *class) others(values [4]int64) map[corev1.ResourceName]int64 {
	others := map[corev1.ResourceName]int64{}
	for i, name := range c.otherNames() {
		if values[i] > 0 {
			others[name] = values[i]
		}
	}
	return others
}

// Count returns the number of nodes with the given labels.
func (m *Model) Count(wanted map[string]string) int32 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	selector, count := labels.SelectorFromSet(wanted), int32(0)
	for i := range m.classes {
		if c := &m.classes[i]; c.nodes > 0 && !c.Potential && selector.Matches(labels.Set(c.Labels)) {
			count += c.nodes
		}
	}
	return count
}
