package simulate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Summary is nodes by class and by what they have left. It is what a cluster tells others of its nodes.
type Summary struct {
	Class
	Nodes []Alike
}

// Alike are nodes of a class with the same left.
type Alike struct {
	Count int32
	Free  corev1.ResourceList
}

// Summarize returns the nodes in a fixed order. If there would be more rows than wanted, what nodes have left is rounded
// down, by an ever larger share of what they offer. Nodes that volumes name are classes of their own.
func (m *Model) Summarize(rows int) []Summary {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, named := m.toldVolumes()
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

// single describes a node by itself, with the label that names it.
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

// row is what a node has left. Only so many resources of other kinds are told apart as fit.
type row struct {
	free  [fixed]int64
	other [4]int64
}

func compareRows(a, b row) int {
	return slices.Compare(append(a.free[:], a.other[:]...), append(b.free[:], b.other[:]...))
}

// rows counts the nodes by what they have left, but for some.
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

// otherNames are the resources beside the usual that a summary tells of.
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

// Count returns how many nodes have some labels.
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
