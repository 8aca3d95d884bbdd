package router

import (
	"bytes"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// maxEvent bounds an event of a cell's watch.
const maxEvent = 16 << 20

// cellEvents are the events of a cell's watch, without those about objects that are not the cell's to show.
type cellEvents struct {
	*splice.EventReader
	body    io.ReadCloser
	c       *call
	cell    slots.Index
	initial bool
}

func (s *watchStream) events(cell slots.Index, response *http.Response, initial bool) *cellEvents {
	f, _ := formOf(response.Header.Get("Content-Type"))
	return &cellEvents{
		EventReader: splice.NewEventReader(response.Body, f.encoding, maxEvent),
		body:        response.Body, c: s.c, cell: cell, initial: initial,
	}
}

// Next returns the next event.
func (e *cellEvents) Next() (*splice.Event, error) {
	for {
		event, err := e.EventReader.Next()
		if err != nil {
			_ = e.body.Close() // it has ended
			return nil, err
		}
		switch {
		case event.Type == splice.Bookmark:
			e.initial = e.initial && !event.InitialEventsEnd
			return event, nil
		case event.Type == splice.Error || e.c.placement != kinds.ByName || e.c.owns(e.cell, event.Object.Key()):
			return event, nil
		case !e.initial:
			// Only the version is news: another end of initial events, long after the first, tells the merger nothing else.
			return &splice.Event{Type: splice.Bookmark, InitialEventsEnd: true, Object: event.Object}, nil
		}
	}
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
