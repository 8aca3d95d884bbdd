package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/limits"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// maxEvent limits the size of an event in a cell's watch.
const maxEvent = 16 << 20

// cellEvents reads the events of a cell's watch, without those about objects that belong to other cells.
type cellEvents struct {
	*splice.EventReader
	ctx     context.Context // that of the stream
	body    io.ReadCloser
	s       *watchStream
	cell    slots.Index
	initial bool
	// past is the cell's resourceVersion when the watch was resumed.
	past uint64
}

func (s *watchStream) events(ctx context.Context, cell slots.Index, response *http.Response, initial bool) (*cellEvents, error) {
	f, _ := formOf(response.Header.Get("Content-Type"))
	events := &cellEvents{
		EventReader: splice.NewEventReader(response.Body, f.encoding, maxEvent),
		ctx:         ctx, body: response.Body, s: s, cell: cell, initial: initial,
	}
	events.Hold = func(bytes int) error { return forward.Hold(ctx, int64(bytes)) }
	events.Release = func(bytes int) { limits.GrantFrom(ctx).Shrink(int64(bytes)) }
	if !s.moves.Any() || s.c.isHub(cell) {
		return events, nil
	}
	switch past, err := s.rt.versionOf(ctx, s.c, cell); {
	case err == nil:
		s.past[cell].CompareAndSwap(0, past)
		if !initial {
			events.past = past
		}
	case !initial: // others only need it to join a shared stream
		_ = response.Body.Close()
		return nil, fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, err)
	}
	return events, nil
}

// Next returns the next event.
func (e *cellEvents) Next() (*splice.Event, error) {
	for {
		event, err := e.EventReader.Next()
		if err != nil {
			_ = e.body.Close() // the stream has ended
			return nil, err
		}
		if event.Type == splice.Bookmark {
			e.initial = e.initial && !event.InitialEventsEnd
			return event, nil
		}
		shown, err := e.shows(event)
		switch {
		case err != nil:
			_ = e.body.Close()
			return nil, err
		case shown:
			return event, nil
		case !e.initial:
			// Only the version is of interest. A further end of the initial events means nothing else to the merger.
			return &splice.Event{Type: splice.Bookmark, InitialEventsEnd: true, Object: event.Object}, nil
		}
	}
}

// shows reports whether an event is passed to the merger.
func (e *cellEvents) shows(event *splice.Event) (bool, error) {
	if event.Type == splice.Error {
		return true, nil
	}
	if e.s.c.hides(event.Object.Key()) {
		return false, nil
	}
	if e.initial {
		return e.s.c.placement != placement.ByName || e.s.c.owns(e.cell, event.Object.Key()), nil
	}
	if e.s.c.placement == placement.ByName && !e.s.moves.owns(e.cell, &event.Object) {
		return false, e.notEarly(event)
	}
	replaced, err := e.s.moves.replaced(e.ctx, e.cell, event, e.past)
	return !replaced, err
}

// notEarly makes sure that an event about an object of another cell does not belong to a later topology, where the object is this cell's:
// the client would never see it. Such an event ends the stream; a watch by the later topology will read it again.
func (e *cellEvents) notEarly(event *splice.Event) error {
	if event.Object.Label(names.RebalanceStatusLabel) != "" || placement.OfControlPlane(event.Object.Namespace) {
		return nil // never shown
	}
	err := e.s.rt.confirm(e.ctx, e.s.c, e.cell)
	if errors.Is(err, errOutdatedEpoch) {
		earlyEvents.Inc()
	}
	return err
}

// statusOf decodes an error answer.
func statusOf(response *http.Response) *apierrors.StatusError {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err == nil {
		if status := readStatus(body); status != nil {
			return &apierrors.StatusError{ErrStatus: *status}
		}
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, "watch", schema.GroupResource{}, "", string(bytes.TrimSpace(body)), 0, true)
}
