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
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// maxEvent bounds an event of a cell's watch.
const maxEvent = 16 << 20

// cellEvents are the events of a cell's watch, without those about objects that are not the cell's to show.
type cellEvents struct {
	*splice.EventReader
	ctx     context.Context // that of the stream
	body    io.ReadCloser
	s       *watchStream
	cell    slots.Index
	initial bool
	// past is how far the cell had got when a watch was resumed.
	past uint64
}

func (s *watchStream) events(ctx context.Context, cell slots.Index, response *http.Response, initial bool) (*cellEvents, error) {
	f, _ := formOf(response.Header.Get("Content-Type"))
	events := &cellEvents{
		EventReader: splice.NewEventReader(response.Body, f.encoding, maxEvent),
		ctx:         ctx, body: response.Body, s: s, cell: cell, initial: initial,
	}
	if !initial && s.moves.any() {
		var err error
		if events.past, err = s.rt.versionOf(ctx, s.c, cell); err != nil {
			_ = response.Body.Close()
			return nil, fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, err)
		}
	}
	return events, nil
}

// Next returns the next event.
func (e *cellEvents) Next() (*splice.Event, error) {
	for {
		event, err := e.EventReader.Next()
		if err != nil {
			_ = e.body.Close() // it has ended
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
			// Only the version is news: another end of initial events, long after the first, tells the merger nothing else.
			return &splice.Event{Type: splice.Bookmark, InitialEventsEnd: true, Object: event.Object}, nil
		}
	}
}

// shows reports whether an object may be the cell's to show.
func (e *cellEvents) shows(event *splice.Event) (bool, error) {
	if event.Type == splice.Error {
		return true, nil
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

// notEarly makes sure that an event about an object that is not the cell's to show is not one of a later map than ours: that it was passed
// over would never be made up for. Such an event ends the stream, and is read again by the watch that goes on by its map.
func (e *cellEvents) notEarly(event *splice.Event) error {
	if event.Object.Label(names.RebalanceStatusLabel) != "" || placement.OfControlPlane(event.Object.Namespace) {
		return nil // it is never shown
	}
	err := e.s.rt.confirm(e.ctx, e.s.c, e.cell)
	if errors.Is(err, errStaleMap) {
		earlyEvents.Inc()
	}
	return err
}

// statusOf reads an answer that is an error.
func statusOf(response *http.Response) *apierrors.StatusError {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err == nil {
		if status := readStatus(body); status != nil {
			return &apierrors.StatusError{ErrStatus: *status}
		}
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, "watch", schema.GroupResource{}, "", string(bytes.TrimSpace(body)), 0, true)
}
