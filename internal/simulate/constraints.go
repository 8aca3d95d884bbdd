package simulate

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// apply lowers the caps of nodes until all constraints between pods hold. Each constraint bounds the replicas of
// its domains. Lowering one cap may tighten another constraint, so this repeats until nothing changes; caps never
// grow, so it terminates.
func (s *simulation) apply() {
	s.caps = make([]int64, len(s.m.nodes))
	for at := range s.m.nodes {
		s.caps[at] = s.capOf(at)
	}
	s.limitRepelled()
	for {
		before := s.total()
		for i := range s.p.apart {
			s.limitApart(&s.p.apart[i])
		}
		for i := range s.p.together {
			s.limitTogether(&s.p.together[i])
		}
		for i := range s.p.spread {
			s.limitSpread(&s.p.spread[i])
		}
		s.limitVolumes()
		if s.total() == before {
			return
		}
	}
}

func (s *simulation) total() int64 {
	sum := int64(0)
	for _, most := range s.caps {
		sum += most
	}
	return sum
}

// domain is the set of nodes with the same value of a topology key.
type domain struct {
	nodes []int32
	// here is the number of matching pods, free the number of replicas that the nodes take.
	here, free int64
}

// domains groups nodes by a topology key. Nodes without the key belong to none. For the hostname key, each node is
// a domain.
func (s *simulation) domains(key string, counts func(verdict) bool) []domain {
	if key == corev1.LabelHostname {
		return s.singles(counts)
	}
	var found []domain
	index := map[string]int{}
	for at := range s.m.nodes {
		n := &s.m.nodes[at]
		if n.class == noClass || !counts(s.verdicts[n.class]) {
			continue
		}
		value, has := s.m.classes[n.class].Labels[key]
		if !has {
			continue
		}
		i, known := index[value]
		if !known {
			i = len(found)
			index[value] = i
			found = append(found, domain{})
		}
		found[i].nodes = append(found[i].nodes, int32(at))
		found[i].free += s.caps[at]
	}
	return found
}

// singles makes every node a domain.
func (s *simulation) singles(counts func(verdict) bool) []domain {
	nodes := make([]int32, len(s.m.nodes))
	found := make([]domain, 0, len(s.m.nodes))
	for at := range s.m.nodes {
		if n := &s.m.nodes[at]; n.class != noClass && counts(s.verdicts[n.class]) {
			nodes[at] = int32(at)
			found = append(found, domain{nodes: nodes[at : at+1], free: s.caps[at]})
		}
	}
	return found
}

// census counts the matching pods by node.
func (s *simulation) census(means func(*shape) bool) map[int32]int64 {
	counted := map[int32]int64{}
	for _, other := range s.m.shapes {
		if !means(other) {
			continue
		}
		for at, count := range other.where {
			counted[at] += int64(count)
		}
	}
	return counted
}

func (d *domain) count(census map[int32]int64) {
	d.here = 0
	if len(census) == 0 {
		return
	}
	for _, at := range d.nodes {
		d.here += census[at]
	}
}

// limit bounds the replicas of a domain, spread evenly over its nodes.
func (s *simulation) limit(d *domain, most int64) {
	if d.free <= most {
		return
	}
	highest := int64(0)
	for _, at := range d.nodes {
		highest = max(highest, s.caps[at])
	}
	// Find the highest per-node cap that stays within the bound.
	low, high := int64(0), highest
	for low < high {
		middle := (low + high + 1) / 2
		if s.level(d, middle) <= most {
			low = middle
		} else {
			high = middle - 1
		}
	}
	rest := most - s.level(d, low)
	for _, at := range d.nodes {
		if s.caps[at] <= low {
			continue
		}
		s.caps[at] = low
		if rest > 0 {
			s.caps[at]++
			rest--
		}
	}
	d.free = most
}

func (s *simulation) level(d *domain, highest int64) int64 {
	sum := int64(0)
	for _, at := range d.nodes {
		sum += min(s.caps[at], highest)
	}
	return sum
}

// limitSpread keeps the domains of a topology spread constraint at most maxSkew above the one with the fewest pods.
// That one can be filled to its capacity, so the others may go that far above it.
func (s *simulation) limitSpread(term *spreadTerm) {
	domains := s.spreadDomains(term)
	inside := make([]bool, len(s.m.nodes))
	least := int64(math.MaxInt64)
	for i := range domains {
		d := &domains[i]
		for _, at := range d.nodes {
			inside[at] = true
		}
		if term.self {
			least = min(least, d.here+d.free)
		} else {
			least = min(least, d.here)
		}
	}
	if len(domains) < term.minDomains {
		least = 0
	}
	for at := range s.caps {
		if !inside[at] {
			s.caps[at] = 0
		}
	}
	for i := range domains {
		d := &domains[i]
		switch {
		case term.self:
			s.limit(d, max(0, least+term.maxSkew-d.here))
		case d.here-least > term.maxSkew:
			s.limit(d, 0)
		}
	}
}

// spreadDomains returns the domains of a topology spread constraint with their matching pods.
func (s *simulation) spreadDomains(term *spreadTerm) []domain {
	domains := s.domains(term.key, func(v verdict) bool {
		return v.exists && v.keys && (v.affinity || !term.honorAffinity) && (v.taints || !term.honorTaints)
	})
	census := s.census(func(other *shape) bool {
		return other.namespace == s.p.namespace && term.selector.Matches(labels.Set(other.labels))
	})
	for i := range domains {
		domains[i].count(census)
	}
	return domains
}

// limitApart keeps replicas out of domains with pods that match an anti-affinity term, and apart from each other if
// the term matches them.
func (s *simulation) limitApart(term *podTerm) {
	census := s.census(func(other *shape) bool { return term.matches(other.namespace, other.labels) })
	domains := s.domains(term.key, func(v verdict) bool { return v.exists })
	for i := range domains {
		d := &domains[i]
		d.count(census)
		switch {
		case d.here > 0:
			s.limit(d, 0)
		case term.self:
			s.limit(d, 1)
		}
	}
}

// limitTogether keeps replicas in domains with pods that match an affinity term. If there are none and the term
// matches the pod itself, the first replica may go anywhere and the others follow.
func (s *simulation) limitTogether(term *podTerm) {
	census := s.census(func(other *shape) bool { return term.matches(other.namespace, other.labels) })
	domains := s.domains(term.key, func(v verdict) bool { return v.exists })
	some, roomiest := false, -1
	for i := range domains {
		d := &domains[i]
		d.count(census)
		some = some || d.here > 0
		if roomiest < 0 || d.free > domains[roomiest].free {
			roomiest = i
		}
	}
	kept := make([]bool, len(s.m.nodes))
	for i := range domains {
		if domains[i].here > 0 || !some && term.self && i == roomiest {
			for _, at := range domains[i].nodes {
				kept[at] = true
			}
		}
	}
	for at := range s.caps {
		if !kept[at] {
			s.caps[at] = 0
		}
	}
}

// repels reports whether pods of a shape have an anti-affinity to the pod.
func (s *shape) repels(p *Pod) bool {
	return slices.ContainsFunc(s.apart, func(term podTerm) bool { return term.matches(p.namespace, p.labels) })
}

// limitRepelled keeps replicas away from pods with an anti-affinity to them.
func (s *simulation) limitRepelled() {
	for _, other := range s.m.shapes {
		for i := range other.apart {
			term := &other.apart[i]
			if !term.matches(s.p.namespace, s.p.labels) {
				continue
			}
			census := s.census(func(some *shape) bool { return some == other })
			domains := s.domains(term.key, func(v verdict) bool { return v.exists })
			for j := range domains {
				if domains[j].count(census); domains[j].here > 0 {
					s.limit(&domains[j], 0)
				}
			}
		}
	}
}

// limitVolumes bounds replicas that share a volume: to one replica, or to one node.
func (s *simulation) limitVolumes() {
	for i := range s.volumes {
		if !s.volumes[i].exclusive() && !s.volumes[i].oneNode() {
			continue
		}
		roomiest := 0
		for at := range s.caps {
			if s.caps[at] > s.caps[roomiest] {
				roomiest = at
			}
		}
		for at := range s.caps {
			switch {
			case at != roomiest:
				s.caps[at] = 0
			case s.volumes[i].exclusive():
				s.caps[at] = min(s.caps[at], 1)
			}
		}
	}
}
