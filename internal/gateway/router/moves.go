package router

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// moves tells a watch about objects on their way between cells, by the topologies that were in force since its position was handed
// out: what happened then may still be ahead of it.
type moves struct {
	rt *Router
	c  *call
	// views are the topologies, the one in force first.
	views []*topology.View
}

func (rt *Router) movesOf(c *call, q *question) *moves {
	m := &moves{rt: rt, c: c, views: []*topology.View{c.view}}
	for i := len(q.passed) - 1; i >= 0; i-- {
		m.views = append(m.views, q.passed[i])
	}
	return m
}

// any reports whether anything can be on its way.
func (m *moves) any() bool {
	for _, view := range m.views {
		if view.Moving() {
			return true
		}
	}
	return false
}

// way is where an object comes from and goes to.
type way struct{ from, to string }

// between returns the way that an object is on, as far as a cell has to do with it. Slots whose objects have all arrived count too: a
// watch may not have got there yet.
func (m *moves) between(cell slots.Index, object *splice.Object) (way, bool) {
	if m.c.placement == placement.Anywhere {
		return way{}, false
	}
	slot, name := m.rt.slotIn(m.c.placement, object.Namespace, object.Name, ""), m.c.view.Name(cell)
	for _, view := range m.views {
		route := view.Route(slot)
		if w := (way{view.Name(route.Old), view.Name(route.New)}); route.Moving() && (w.from == name || w.to == name) {
			return w, true
		}
	}
	return way{}, false
}

// Side implements watchmerge.Moves.
func (m *moves) Side(cell int, object *splice.Object) watchmerge.Side {
	w, moving := m.between(slots.Index(cell), object)
	switch {
	case !moving:
		return watchmerge.Stays
	case w.from == m.c.view.Name(slots.Index(cell)):
		return watchmerge.Leaves
	default:
		return watchmerge.Arrives
	}
}

// After implements watchmerge.Moves. Objects keep what their last move has written on them; only what is about the way they are on counts.
func (m *moves) After(cell int, event *splice.Event) watchmerge.Dependency {
	w, moving := m.between(slots.Index(cell), &event.Object)
	if !moving {
		return watchmerge.Dependency{}
	}
	other, annotation := w.from, names.MovedFromAnnotation
	if event.Object.Label(names.RebalanceStatusLabel) == names.RebalanceMigrated {
		other, annotation = w.to, names.CopiedAtAnnotation
	}
	name, version, ok := placeIn(event.Object.Annotation(annotation))
	index, found := m.c.view.Index(name)
	if !ok || !found || name != other {
		return watchmerge.Dependency{}
	}
	return watchmerge.Dependency{Cell: int(index), Version: version}
}

// owns reports whether an object may be, or have been, in a cell.
func (m *moves) owns(cell slots.Index, object *splice.Object) bool {
	if placement.OfControlPlane(object.Namespace) {
		return false
	}
	slot, name := slots.Of(object.Namespace, object.Name), m.c.view.Name(cell)
	for _, view := range m.views {
		if route := view.Route(slot); name == view.Name(route.New) || name == view.Name(route.Old) {
			return true
		}
	}
	return false
}

// replaced reports whether an event of the past is about an object whose name another one has in the cell that it would have moved to.
// The client may have seen that one already.
func (m *moves) replaced(ctx context.Context, cell slots.Index, event *splice.Event, past uint64) (bool, error) {
	version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
	if err != nil || version > past || event.Object.Label(names.RebalanceStatusLabel) != "" {
		return false, nil //nolint:nilerr // the merger refuses what is no version
	}
	w, moving := m.between(cell, &event.Object)
	to, found := m.c.view.Index(w.to)
	if !moving || w.from != m.c.view.Name(cell) || !found {
		return false, nil
	}
	info := *m.c.RequestInfo
	info.Namespace = event.Object.Namespace
	c := &call{RequestInfo: &info, view: m.c.view, placement: m.c.placement}
	seen, err := m.rt.look(ctx, c, to, event.Object.Name)
	return seen.state == active && seen.uid != event.Object.UID, err
}

// versionOf returns how far a cell is.
func (rt *Router) versionOf(ctx context.Context, c *call, cell slots.Index) (uint64, error) {
	data, err := rt.inCell(ctx, c, cell, http.MethodGet, c.collectionPath(), url.Values{"limit": {"1"}}, nil)
	if err != nil {
		return 0, err
	}
	var list metav1.PartialObjectMetadataList
	if err := utiljson.Unmarshal(data, &list); err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("reading a list: %w", err))
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}
