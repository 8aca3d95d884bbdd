package router

import (
	"strconv"
	"strings"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// cut decides which cell's object a list shows. Cells also hold copies of objects of the hub, things of their own such as
// default/kubernetes, and what moves leave behind; of one key the client must see one object.
type cut struct {
	rt    *Router
	c     *call
	cells []slots.Index // of the list's sources
	// versions are those that the cells are shown at, by their index; 0 for those that are not.
	versions []uint64
}

func (rt *Router) cutOf(c *call, q *question, cells []slots.Index) *cut {
	s := &cut{rt: rt, c: c, cells: cells, versions: make([]uint64, c.view.Map.Cells())}
	if q != nil && q.token != nil && q.token.Position != nil {
		copy(s.versions, q.token.Position.Versions)
	}
	return s
}

// opened takes the versions of the lists. On further pages they are known before.
func (s *cut) opened(versions []string) {
	for i, version := range versions {
		if cell := s.cells[i]; s.versions[cell] == 0 {
			s.versions[cell], _ = strconv.ParseUint(version, 10, 64) // what is no version is refused when the list ends
		}
	}
}

// choose is for splice.ListOptions.
func (s *cut) choose(candidates []*splice.Item) int {
	best, rank := -1, hidden
	for i, candidate := range candidates {
		cell := s.cells[candidate.Source]
		if s.c.placement == placement.ByName {
			route := s.c.view.Locate(slotOfKey(candidate.Key()))
			if cell != route.New && cell != route.Old || inControlPlane(candidate.Key()) {
				continue
			}
			if len(candidates) == 1 && !route.Moving() {
				return i
			}
		}
		object, err := candidate.Object()
		if err != nil {
			continue
		}
		if r := s.rank(cell, object.Key(), object.Label(names.RebalanceStatusLabel), object.Annotation(names.CopiedAtAnnotation)); r > rank {
			best, rank = i, r
		}
	}
	return best
}

// The ranks of objects of one key, the best last.
const (
	hidden = iota
	// originals have been given up, but for a copy that the list is too old to show.
	originals
	// copies stand in for their originals, which are frozen, or have been given up.
	copies
	// actives are not on their way.
	actives
	// owned are those in the cell that objects of the slot are made in.
	owned
)

// rank tells how good an object is for the list. One that has been given up is shown if its copy came after the state that the list
// shows of the other cell.
func (s *cut) rank(cell slots.Index, key, status, copiedAt string) int {
	switch stateOf(status) {
	case frozen:
		return copies
	case active:
		namespace, name, _ := strings.Cut(key, "/")
		if cell == s.c.view.Locate(s.rt.slotIn(s.c.placement, namespace, name, "")).New {
			return owned
		}
		return actives
	}
	if name, version, ok := placeIn(copiedAt); ok {
		if other, found := s.c.view.Index(name); found && s.versions[other] != 0 && s.versions[other] < version {
			return originals
		}
	}
	return hidden
}

// placeIn reads an annotation of the form `cell/resourceVersion`.
func placeIn(annotation string) (cell string, version uint64, ok bool) {
	cell, text, found := strings.Cut(annotation, "/")
	version, err := strconv.ParseUint(text, 10, 63)
	return cell, version, found && err == nil && version > 0
}

// owns reports whether the object of a key may be in a cell.
func (c *call) owns(cell slots.Index, key string) bool {
	route := c.view.Locate(slotOfKey(key))
	return (cell == route.New || cell == route.Old) && !inControlPlane(key)
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
