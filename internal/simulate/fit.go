package simulate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
)

// Fit is the number of replicas of a pod that fit.
type Fit struct {
	// Replicas fit existing nodes without preemption.
	Replicas int64
	// Growth is how many more fit nodes that could be added.
	Growth int64
	// Classes are the results by class, without those where nothing fits.
	Classes []ClassFit
}

// ClassFit is the number of replicas that fit the nodes of one class.
type ClassFit struct {
	Class     string
	Potential bool
	Replicas  int64
}

// Total returns Replicas plus Growth.
func (f Fit) Total() int64 { return f.Replicas + f.Growth }

// Fit simulates placing a pod repeatedly until no node takes it, or the quotas of its namespace are used up.
func (m *Model) Fit(p *Pod) Fit {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.fit(p).limit(m.quotaFor(p))
}

func (m *Model) fit(p *Pod) Fit {
	if p.numbered() {
		return m.fitNumbered(p)
	}
	s := m.simulate(p, m.volumesOf(p))
	if s.constrained() {
		s.apply()
	}
	return s.sum()
}

// simulation is the state of one computation.
type simulation struct {
	m       *Model
	p       *Pod
	volumes []volume
	// pinned is the only node that takes replicas, or anywhere, or nowhere.
	pinned int
	// verdicts of the classes, by index.
	verdicts []verdict
	// caps is how many replicas each node takes; nil while nodes are independent.
	caps []int64
}

// verdict is the result of a pod's label and taint rules for a class.
type verdict struct {
	exists, affinity, taints bool
	// unnamed is the result for nodes without a name, if the pod or one of its volumes may select a node by name.
	unnamed bool
	// keys reports whether the nodes have all topology keys of the pod.
	keys bool
}

// allowed reports whether the pod may run on the nodes.
func (v verdict) allowed() bool { return v.exists && v.affinity && v.taints }

func (m *Model) simulate(p *Pod, volumes []volume) *simulation {
	s := &simulation{m: m, p: p, volumes: volumes, pinned: anywhere, verdicts: make([]verdict, len(m.classes))}
	for i := range m.classes {
		c := &m.classes[i]
		if c.nodes == 0 || c.overdrawn {
			continue
		}
		v := &s.verdicts[i]
		v.exists, v.taints, v.keys = true, p.tolerates(c.Taints), c.hasKeys(p.spread)
		if s.byName() {
			v.unnamed = s.reachable(&node{}, c)
		}
		if p.named {
			v.affinity = true // evaluated by node, or for all unnamed nodes at once
			continue
		}
		matches, err := p.affinity.Match(c.sample)
		v.affinity = err == nil && matches
	}
	return s
}

func (c *class) hasKeys(terms []spreadTerm) bool {
	for i := range terms {
		if _, has := c.Labels[terms[i].key]; !has && terms[i].key != corev1.LabelHostname {
			return false
		}
	}
	return true
}

// byName reports whether verdicts must be evaluated per node: the pod or one of its volumes may select a node by
// name.
func (s *simulation) byName() bool { return s.p.named || len(s.volumes) > 0 }

// constrained reports whether the placement of one replica affects the others.
func (s *simulation) constrained() bool {
	if len(s.p.spread)+len(s.p.together)+len(s.p.apart)+len(s.volumes) > 0 || s.pinned != anywhere {
		return true
	}
	for _, other := range s.m.shapes {
		if other.repels(s.p) {
			return true
		}
	}
	return false
}

// capOf returns how many replicas a node takes by itself.
func (s *simulation) capOf(at int) int64 {
	n := &s.m.nodes[at]
	if n.class == noClass || !s.verdicts[n.class].allowed() || s.pinned != anywhere && s.pinned != at {
		return 0
	}
	c := &s.m.classes[n.class]
	most := int64(math.MaxInt32)
	for place, asked := range &s.p.requests.fixed {
		if asked > 0 {
			most = min(most, (c.allocatable.fixed[place]-n.used.fixed[place])/asked)
		}
	}
	for name, asked := range s.p.requests.other {
		if asked > 0 {
			most = min(most, (c.allocatable.other[name]-n.used.other[name])/asked)
		}
	}
	if most <= 0 {
		return 0
	}
	if len(s.p.ports) > 0 {
		if n.takesPorts(s.p.ports) {
			return 0
		}
		most = 1
	}
	switch {
	case !s.byName():
	case n.name == "" && !s.verdicts[n.class].unnamed, n.name != "" && !s.reachable(n, c):
		return 0
	}
	return most
}

func (n *node) takesPorts(wanted []hostPort) bool {
	if n.rare == nil {
		return false
	}
	for taken := range n.rare.ports {
		for _, port := range wanted {
			if port.conflicts(taken) {
				return true
			}
		}
	}
	return false
}

// reachable evaluates the rules for a single node.
func (s *simulation) reachable(n *node, c *class) bool {
	single := &corev1.Node{}
	single.Name, single.Labels = n.nameOf(c), make(map[string]string, len(c.Labels)+1)
	for key, value := range c.Labels {
		single.Labels[key] = value
	}
	if single.Name != "" {
		single.Labels[corev1.LabelHostname] = single.Name
	}
	if matches, err := s.p.affinity.Match(single); err != nil || !matches {
		return false
	}
	for i := range s.volumes {
		if matches, err := s.volumes[i].affinity.Match(single); err != nil || !matches {
			return false
		}
	}
	return true
}

// sum returns the result by class.
func (s *simulation) sum() Fit {
	counts := make([]int64, len(s.m.classes))
	for at := range s.m.nodes {
		n := &s.m.nodes[at]
		if n.class == noClass {
			continue
		}
		if s.caps != nil {
			counts[n.class] += s.caps[at]
		} else {
			counts[n.class] += s.capOf(at)
		}
	}
	var fit Fit
	for i, count := range counts {
		if count == 0 {
			continue
		}
		c := &s.m.classes[i]
		fit.Classes = append(fit.Classes, ClassFit{Class: c.Name, Potential: c.Potential, Replicas: count})
		if c.Potential {
			fit.Growth += count
		} else {
			fit.Replicas += count
		}
	}
	return fit
}

// Preemptible returns how many more replicas would fit if pods of lower priority were preempted, as kube-scheduler
// does when a pod fits nowhere and its policy allows it. It is not part of Fit: another cluster may have free
// capacity. It ignores constraints between pods.
func (m *Model) Preemptible(p *Pod) int64 {
	if !p.preempts {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	s, more := m.simulate(p, m.volumesOf(p)), int64(0)
	for at := range m.nodes {
		n := &m.nodes[at]
		if n.class == noClass || !s.verdicts[n.class].allowed() {
			continue
		}
		lower := n.usedBelow(p.priority)
		free := m.classes[n.class].allocatable.plus(&n.used, -1)
		without := free.plus(&lower, 1)
		more += without.times(&p.requests) - free.times(&p.requests)
	}
	return more
}

// usedBelow returns the amounts used by pods of lower priority.
func (n *node) usedBelow(priority int32) amounts {
	var lower amounts
	if priority > 0 {
		lower = n.used
	}
	if n.rare == nil {
		return lower
	}
	for i := range n.rare.levels {
		l := &n.rare.levels[i]
		switch {
		case priority > 0 && l.priority >= priority:
			lower = lower.plus(&l.used, -1)
		case priority <= 0 && l.priority < priority:
			lower = lower.plus(&l.used, 1)
		}
	}
	return lower
}
