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
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// moves implements watchmerge.Moves.
type moves struct {
	routing.Moves
	rt *Router
	c  *call
}

func (rt *Router) movesOf(c *call, q *query) *moves {
	m := &moves{rt: rt, c: c, Moves: routing.Moves{&c.view.View}}
	for i := len(q.passed) - 1; i >= 0; i-- {
		m.Moves = append(m.Moves, &q.passed[i].View)
	}
	return m
}

// of returns the move of an object that a cell takes part in.
func (m *moves) of(cell slots.Index, object *splice.Object) (routing.Move, bool) {
	if m.c.placement == placement.Anywhere || m.c.isHub(cell) {
		return routing.Move{}, false
	}
	return m.Of(cell, m.slotOf(object))
}

func (m *moves) slotOf(object *splice.Object) slots.Slot {
	return m.rt.slotIn(m.c.placement, object.Namespace, object.Name, "")
}

// Side implements watchmerge.Moves.
func (m *moves) Side(cell int, object *splice.Object) watchmerge.Side {
	move, moving := m.of(slots.Index(cell), object)
	switch {
	case !moving:
		return watchmerge.Stays
	case move.From == m.c.view.Name(slots.Index(cell)):
		return watchmerge.Leaves
	default:
		return watchmerge.Arrives
	}
}

// After implements watchmerge.Moves.
func (m *moves) After(cell int, event *splice.Event) watchmerge.Dependency {
	if m.c.placement == placement.Anywhere || m.c.isHub(slots.Index(cell)) {
		return watchmerge.Dependency{}
	}
	other, version, depends := m.Moves.After(slots.Index(cell), m.slotOf(&event.Object), routing.Annotated{
		Label:     event.Object.Label(names.RebalanceStatusLabel),
		MovedFrom: event.Object.Annotation(names.MovedFromAnnotation),
		CopiedAt:  event.Object.Annotation(names.CopiedAtAnnotation),
	})
	if !depends {
		return watchmerge.Dependency{}
	}
	return watchmerge.Dependency{Cell: int(other), Version: version}
}

// owns reports whether an object may be, or have been, in a cell.
func (m *moves) owns(cell slots.Index, object *splice.Object) bool {
	return !placement.OfControlPlane(object.Namespace) && m.Owns(cell, slots.Of(object.Namespace, object.Name))
}

// replaced reports whether a past event is about an object whose name belongs to another object in the cell it would have moved to. The
// client may have seen that one already.
func (m *moves) replaced(ctx context.Context, cell slots.Index, event *splice.Event, past uint64) (bool, error) {
	version, err := strconv.ParseUint(event.Object.ResourceVersion, 10, 64)
	if err != nil || version > past || event.Object.Label(names.RebalanceStatusLabel) != "" {
		return false, nil //nolint:nilerr // the merger refuses invalid versions
	}
	move, moving := m.of(cell, &event.Object)
	to, found := m.c.view.Index(move.To)
	if !moving || move.From != m.c.view.Name(cell) || !found {
		return false, nil
	}
	info := *m.c.RequestInfo
	info.Namespace = event.Object.Namespace
	c := &call{RequestInfo: &info, view: m.c.view, placement: m.c.placement}
	seen, err := m.rt.look(ctx, c, to, event.Object.Name)
	return seen.state == routing.Live && seen.uid != event.Object.UID, err
}

// versionOf returns the present resourceVersion of a cell.
func (rt *Router) versionOf(ctx context.Context, c *call, cell slots.Index) (uint64, error) {
	data, err := rt.inCell(ctx, c, cell, http.MethodGet, c.collectionPath(), url.Values{"limit": {"1"}}, nil)
	if err != nil {
		return 0, err
	}
	var list metav1.PartialObjectMetadataList
	if err := utiljson.Unmarshal(data, &list); err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("decoding a list of %s: %w", c.view.Name(cell), err))
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}
