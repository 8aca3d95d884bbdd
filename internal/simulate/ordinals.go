package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Ordinals returns the pod for some of the replicas of a StatefulSet: those after so many that are there already, and at
// most so many more. Which they are matters only where volumes outlive their pods; all other pods are returned as they are.
func (p *Pod) Ordinals(there, more int64) *Pod {
	if !p.numbered() {
		return p
	}
	some := *p
	some.first, some.most = p.first+max(0, there), max(0, more)
	some.Key = xxhash.Sum64String(strings.Join([]string{
		strconv.FormatUint(p.Key, 10), strconv.FormatInt(some.first, 10), strconv.FormatInt(some.most, 10),
	}, " "))
	return &some
}

// numbered tells that each replica has volumes of its own, which it finds again.
func (p *Pod) numbered() bool {
	return slices.ContainsFunc(p.own, func(s ownClaim) bool { return s.prefix != "" })
}

// fitNumbered simulates placing replicas of which none can be left out. Those whose volumes exist go where these are, and
// come first; then as many of the others as there is room for.
func (m *Model) fitNumbered(p *Pod) Fit {
	at := &queue{m: m, p: p, pinned: anywhere}
	for _, ordinal := range m.settled(p) {
		others := ordinal - p.first - at.placed // before this one
		if ordinal-p.first >= p.most || others > 0 && at.room().Total() < others {
			break
		}
		next := at.place(ordinal)
		if next == nil || others > 0 && next.room().Total() < others {
			return at.fit(others)
		}
		at = next
	}
	return at.fit(p.most - at.placed)
}

// settled returns the replicas with volumes of which it is known where they are, in their order.
func (m *Model) settled(p *Pod) []int64 {
	found := map[int64]bool{}
	for _, own := range p.own {
		if own.prefix == "" {
			continue
		}
		prefix := p.namespace + "/" + own.prefix
		for claim := range m.volumes {
			rest, ours := strings.CutPrefix(claim, prefix)
			if !ours {
				continue
			}
			if ordinal, err := strconv.ParseInt(rest, 10, 64); err == nil && ordinal >= p.first && strconv.FormatInt(ordinal, 10) == rest {
				found[ordinal] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// volumesAt returns where the volumes of a replica are, or may be made.
func (m *Model) volumesAt(p *Pod, ordinal int64) []volume {
	found := m.sharedVolumes(p)
	for _, own := range p.own {
		if v, known := m.volumes[p.namespace+"/"+own.prefix+strconv.FormatInt(ordinal, 10)]; known && own.prefix != "" {
			found = append(found, v)
		} else {
			found = append(found, m.newVolumes(own)...)
		}
	}
	return found
}

// queue is how far placing numbered replicas has come.
type queue struct {
	m      *Model // with those that are placed
	p      *Pod
	placed int64
	byNode []int32
	pinned int
}

// Where replicas may go that share a volume: all to one node, or nowhere once one has it for itself.
const (
	anywhere = -1
	nowhere  = -2
)

// place puts the next replica whose volumes exist where it can run; nil if it cannot.
func (q *queue) place(ordinal int64) *queue {
	s := q.m.simulate(q.p, q.m.volumesAt(q.p, ordinal))
	s.pinned = q.pinned
	s.apply()
	best := -1
	for at, most := range s.caps {
		if most > 0 && (best < 0 || most > s.caps[best]) && s.evenly(int32(at)) {
			best = at
		}
	}
	if best < 0 {
		return nil
	}
	next := &queue{m: q.m.with(q.p, int32(best)), p: q.p, placed: q.placed + 1, byNode: append(slices.Clip(q.byNode), int32(best)), pinned: q.pinned}
	for _, v := range q.m.sharedVolumes(q.p) {
		switch {
		case v.exclusive():
			next.pinned = nowhere
		case v.oneNode() && next.pinned == anywhere:
			next.pinned = best
		}
	}
	return next
}

// room is what there is for replicas whose volumes are yet to be made.
func (q *queue) room() Fit {
	s := q.m.simulate(q.p, q.m.volumesOf(q.p))
	if s.pinned = q.pinned; s.constrained() {
		s.apply()
	}
	return s.sum()
}

// fit is those that are placed and some more, on nodes that exist before those that could be added.
func (q *queue) fit(others int64) Fit {
	more := q.room()
	slices.SortStableFunc(more.Classes, func(a, b ClassFit) int { return cmp.Compare(asInt(a.Potential), asInt(b.Potential)) })
	var fit Fit
	for _, at := range q.byNode {
		c := &q.m.classes[q.m.nodes[at].class]
		fit.add(ClassFit{Class: c.Name, Potential: c.Potential, Replicas: 1})
	}
	for _, c := range more.Classes {
		c.Replicas = min(c.Replicas, others)
		others -= c.Replicas
		fit.add(c)
	}
	return fit
}

func (f *Fit) add(more ClassFit) {
	if more.Replicas <= 0 {
		return
	}
	if more.Potential {
		f.Growth += more.Replicas
	} else {
		f.Replicas += more.Replicas
	}
	if i := slices.IndexFunc(f.Classes, func(c ClassFit) bool { return c.Class == more.Class }); i >= 0 {
		f.Classes[i].Replicas += more.Replicas
		return
	}
	f.Classes = append(f.Classes, more)
}

// with returns a copy in which a pod runs on a node.
func (m *Model) with(p *Pod, at int32) *Model {
	clone := m.clone()
	n := &clone.nodes[at]
	n.used = n.used.plus(&p.requests, 1)
	here := &shape{namespace: p.namespace, labels: p.labels, requests: p.requests, ports: p.ports, apart: p.apart, where: map[int32]int32{at: 1}}
	if len(p.ports) > 0 {
		ports := map[hostPort]int32{}
		rare := &rareFacts{ports: ports}
		if n.rare != nil {
			rare.levels = n.rare.levels
			maps.Copy(ports, n.rare.ports)
		}
		for _, port := range p.ports {
			ports[port]++
		}
		n.rare = rare
	}
	clone.shapes = maps.Clone(m.shapes)
	clone.shapes["placed "+strconv.Itoa(len(m.shapes))] = here
	return clone
}

// evenly tells whether a replica may go to a node as things are, before any others have come that would make up for it.
func (s *simulation) evenly(at int32) bool {
	for i := range s.p.spread {
		term := &s.p.spread[i]
		if !term.self {
			continue
		}
		least, here := int64(-1), int64(0)
		domains := s.spreadDomains(term)
		for j := range domains {
			d := &domains[j]
			if least < 0 || d.here < least {
				least = d.here
			}
			if slices.Contains(d.nodes, at) {
				here = d.here
			}
		}
		if len(domains) < term.minDomains {
			least = 0
		}
		if here+1-least > term.maxSkew {
			return false
		}
	}
	return true
}
