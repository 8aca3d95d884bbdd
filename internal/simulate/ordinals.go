package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Ordinals returns the pod for a range of replicas of a StatefulSet: those after the given number of existing ones,
// and at most the given number more. The range matters only if volumes outlive their pods; other pods are returned
// unchanged.
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

// numbered reports whether each replica has persistent volumes of its own.
func (p *Pod) numbered() bool {
	return slices.ContainsFunc(p.own, func(s ownClaim) bool { return s.prefix != "" })
}

// fitNumbered simulates placing consecutive replicas. Those with existing volumes go where their volumes are and
// are placed first; then the others fill the free capacity.
func (m *Model) fitNumbered(p *Pod) Fit {
	at := &queue{m: m, p: p, pinned: anywhere}
	for _, ordinal := range m.withVolumes(p) {
		others := ordinal - p.first - at.placed // before this one
		if ordinal-p.first >= p.most || others > 0 && at.free().Total() < others {
			break
		}
		next := at.place(ordinal)
		if next == nil || others > 0 && next.free().Total() < others {
			return at.fit(others)
		}
		at = next
	}
	return at.fit(p.most - at.placed)
}

// withVolumes returns the replicas whose volumes have a known location, in order.
func (m *Model) withVolumes(p *Pod) []int64 {
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

// volumesAt returns where the volumes of a replica are, or can be created.
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

// queue is the state of placing numbered replicas.
type queue struct {
	m      *Model // includes the placed replicas
	p      *Pod
	placed int64
	byNode []int32
	pinned int
}

// Special values of pinned: replicas that share a volume go to any node, or nowhere if another replica uses it
// exclusively.
const (
	anywhere = -1
	nowhere  = -2
)

// place puts the next replica with existing volumes on a node; nil if it does not fit.
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

// free returns the capacity for replicas without volumes yet.
func (q *queue) free() Fit {
	s := q.m.simulate(q.p, q.m.volumesOf(q.p))
	if s.pinned = q.pinned; s.constrained() {
		s.apply()
	}
	return s.sum()
}

// fit returns the placed replicas and some others, on existing nodes before potential ones.
func (q *queue) fit(others int64) Fit {
	more := q.free()
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

// with returns a copy with a pod on a node.
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

// evenly reports whether a replica may go to a node now, under the spread constraints and before further replicas
// balance it.
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
