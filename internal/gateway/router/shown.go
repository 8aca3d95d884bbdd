package router

import (
	"strconv"
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// selection decides which cell's object a list shows. Cells also hold copies of objects of the hub, objects of their own such as
// default/kubernetes, and what moves leave behind; of one key the client must see one object.
type selection struct {
	rt    *Router
	c     *call
	cells []slots.Index // of the list's sources
	// versions are the resourceVersions that the list shows the cells at, by index; 0 for cells that it does not show.
	versions []uint64
	// dropped counts the objects left behind by moves that the list did not show.
	dropped int
	copies  []routing.Copy
	indexes []int
}

func (rt *Router) newSelection(c *call, q *query, cells []slots.Index) *selection {
	s := &selection{rt: rt, c: c, cells: cells, versions: make([]uint64, c.width())}
	if q != nil && q.token != nil && q.token.Position != nil {
		copy(s.versions, q.token.Position.Versions)
	}
	return s
}

// opened takes the versions of the lists. On further pages they are known before.
func (s *selection) opened(versions []string) {
	for i, version := range versions {
		if cell := s.cells[i]; s.versions[cell] == 0 {
			s.versions[cell], _ = strconv.ParseUint(version, 10, 64) // an invalid version is refused when the list ends
		}
	}
}

// choose is for splice.ListOptions.
func (s *selection) choose(candidates []*splice.Item) int {
	s.copies, s.indexes = s.copies[:0], s.indexes[:0]
	home := slots.None
	for i, candidate := range candidates {
		cell := s.cells[candidate.Source]
		if s.c.hides(candidate.Key()) {
			continue
		}
		if s.c.placement == placement.ByName {
			if !s.c.owns(cell, candidate.Key()) {
				if !inControlPlane(candidate.Key()) {
					s.dropped++
				}
				continue
			}
			if len(candidates) == 1 && !s.c.view.Locate(slotOfKey(candidate.Key())).Moving() {
				return i
			}
		}
		object, err := candidate.Object()
		if err != nil {
			continue
		}
		home = s.rt.home(s.c, object.Namespace, object.Name)
		s.copies = append(s.copies, routing.Copy{
			Cell: cell, Label: object.Label(names.RebalanceStatusLabel), CopiedAt: object.Annotation(names.CopiedAtAnnotation),
		})
		s.indexes = append(s.indexes, i)
	}
	best := s.c.view.Shown(home, s.copies, s.versions)
	for i := range s.copies {
		if i != best {
			s.dropped++
		}
	}
	if best >= 0 {
		return s.indexes[best]
	}
	return -1
}

// owns reports whether the object of a key may be in a cell.
func (c *call) owns(cell slots.Index, key string) bool {
	return c.view.Owns(cell, slotOfKey(key)) && !inControlPlane(key)
}

// inControlPlane reports whether the object of a key is in a namespace of the control plane.
func inControlPlane(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	return placement.OfControlPlane(namespace)
}

// slotOfKey returns the slot of a key `namespace/name`.
func slotOfKey(key string) slots.Slot {
	namespace, name, _ := strings.Cut(key, "/")
	return slots.Of(namespace, name)
}
