package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustercache/wire"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

const (
	// defaultWatch is the shortest watch of a client that sets no timeout.
	defaultWatch = 30 * time.Minute
	// bookmarkInterval is the interval of bookmarks in an idle watch.
	bookmarkInterval = time.Minute
	// ahead is how many events are buffered for a client, and aheadBytes the size of their objects. The store closes the watch of a client
	// that is further behind than its history.
	ahead      = 128
	aheadBytes = 64 << 10
	// stuck is the write timeout.
	stuck = 30 * time.Second
)

// watch serves a stream of events. An expired version is reported as an event, too, unless the gateway can ask another replica.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q *question, e *encoder, problem error) {
	if e.mediaType == runtime.ContentTypeYAML {
		e.mediaType = runtime.ContentTypeJSON
	}
	who := owner(r)
	end, ok := s.Streams.Open(who)
	if !ok {
		WriteError(w, r, apierrors.NewTooManyRequests(who.Name+" has as many watches open at this cluster-gateway as a user may; close some of them", retryStreams))
		return
	}
	defer end()
	initial := q.SendInitialEvents != nil && *q.SendInitialEvents
	// If we show a share of the clusters, another share may show a contested name. The gateway that merges the shares looks it up.
	contested := q.changed != nil && r.Header.Get(views.ContestedHeader) != ""
	options := clustercache.WatchOptions{Filter: q.filter, From: q.version, Contested: contested}
	switch {
	case initial:
		if problem == nil && q.version != 0 {
			problem = e.store.Foreign(q.version)
		}
		options.From = 0
	case q.version == 0:
		options.From = e.store.Version()
	}
	timeout := watchTime(q)
	if q.AllowWatchBookmarks {
		// A short watch gets a bookmark before its end.
		options.Bookmarks = min(bookmarkInterval, max(timeout*4/5, time.Second))
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	go func() {
		select {
		case <-s.Stopping:
			cancel()
		case <-q.changed:
			cancel() // the client resumes with the new set of clusters
		case <-ctx.Done():
		}
	}()
	var watcher *clustercache.Watcher
	if problem == nil {
		watcher, problem = e.store.Watch(options)
	}
	out := newEventWriter(w, e)
	if problem != nil {
		if !isExpired(problem) || r.Header.Get(views.OthersHeader) != "" {
			WriteError(w, r, problem)
			return
		}
		out.begin()
		out.problem(problem)
		return
	}
	defer watcher.Close()
	h := holder{ctx}
	if list := watcher.Initial(); list != nil {
		var err error
		if out.held, err = e.holdList(h, list); err != nil {
			WriteError(w, r, err)
			return
		}
	}
	out.endOfInitial = q.AllowWatchBookmarks && initial
	out.begin()
	out.follow(ctx, watcher, h)
}

func watchTime(q *question) time.Duration {
	if q.TimeoutSeconds != nil && *q.TimeoutSeconds > 0 {
		return time.Duration(*q.TimeoutSeconds) * time.Second
	}
	// Random timeouts keep watches from being reopened all at once.
	return defaultWatch + rand.N(defaultWatch)
}

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// eventWriter writes the events of a watch.
type eventWriter struct {
	*encoder
	w        http.ResponseWriter
	control  *http.ResponseController
	buffered *bufio.Writer
	// endOfInitial is set if the client wants a bookmark after the initial events.
	endOfInitial bool
	// held is counted for the initial events.
	held int
	// headed is set once a Table with column definitions was sent.
	headed bool
}

func newEventWriter(w http.ResponseWriter, e *encoder) *eventWriter {
	control := http.NewResponseController(w)
	return &eventWriter{encoder: e, w: w, control: control, buffered: bufio.NewWriterSize(timed{w, control}, 32<<10)}
}

// timed is a writer that fails if a write takes too long.
type timed struct {
	io.Writer
	control *http.ResponseController
}

// Write implements io.Writer.
func (t timed) Write(b []byte) (int, error) {
	// Only the connections of tests have no deadlines.
	if err := t.control.SetWriteDeadline(time.Now().Add(stuck)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return t.Writer.Write(b)
}

func (o *eventWriter) begin() {
	contentType := o.mediaType
	if o.isProtobuf() {
		contentType += ";stream=watch"
	}
	o.w.Header().Set("Content-Type", contentType)
	o.w.WriteHeader(http.StatusOK)
	_ = o.control.Flush() // the next write notices a client that has gone
}

// follow writes events until there are no more or the client has gone.
func (o *eventWriter) follow(ctx context.Context, watcher *clustercache.Watcher, h holder) {
	ctx, cancel := context.WithCancel(ctx)
	events, room := make(chan buffered, ahead), semaphore.NewWeighted(aheadBytes)
	var problem error
	go func() {
		defer close(events)
		for {
			initial := watcher.Initial() != nil
			event, err := watcher.Next(ctx)
			if err != nil {
				problem = err
				return
			}
			next := buffered{Event: event}
			switch {
			case event.InitialEventsEnd:
				next.held = o.held
			case !initial:
				next.held = o.copies() * len(event.Object.Raw)
				err = h.hold(next.held)
			}
			if err == nil {
				err = room.Acquire(ctx, next.size())
			}
			if err != nil {
				return // the client resumes from its last event
			}
			select {
			case events <- next:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range events { // the reader must end before the watcher is closed
		}
	}()
	for event := range events {
		if err := o.event(event.Event); err != nil {
			return
		}
		room.Release(event.size())
		h.release(event.held)
		if len(events) == 0 {
			if err := o.flush(); err != nil {
				return
			}
		}
	}
	if isExpired(problem) {
		o.problem(problem)
	}
}

// buffered is an event that waits for the client, and what is counted until it is written.
type buffered struct {
	*clustercache.Event
	held int
}

// size is what an event takes of the buffer; a large one fills it.
func (b buffered) size() int64 { return int64(min(len(b.Object.Raw), aheadBytes)) }

func (o *eventWriter) flush() error {
	if err := o.buffered.Flush(); err != nil {
		return err
	}
	if err := o.control.Flush(); err != nil {
		return err
	}
	// An idle watch must not hit the write deadline.
	if err := o.control.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (o *eventWriter) event(event *clustercache.Event) error {
	if event.Type == watch.Bookmark {
		if event.InitialEventsEnd && !o.endOfInitial {
			return nil
		}
		object, err := o.bookmark(event.Version, event.InitialEventsEnd)
		if err != nil {
			return err
		}
		return o.writeEvent(o.buffered, string(watch.Bookmark), object)
	}
	headers := o.shape == table && !o.headed
	key := o.kind.Group + ";" + o.key()
	if headers {
		key += ";headers"
		o.headed = true
	}
	encoded, err := event.Encoded(key, func(w io.Writer) error {
		shown := event.Object
		if event.Contested {
			var err error
			if shown.Raw, err = wire.Annotated(nil, shown.Raw, wire.Annotation{Key: names.ContestedAnnotation, Value: "true"}); err != nil {
				return err
			}
		}
		object, err := o.eventObject(shown, headers)
		if err != nil {
			return err
		}
		return o.writeEvent(w, string(event.Type), object)
	})
	if err != nil {
		return err
	}
	_, err = o.buffered.Write(encoded)
	return err
}

func (o *eventWriter) eventObject(object clustercache.Object, headers bool) ([]byte, error) {
	if o.shape != table {
		return o.object(object)
	}
	// Rows contain ages, so that they cannot be cached.
	at := *o.encoder
	at.now = time.Now()
	return at.tableOf(object, headers)
}

// problem writes an error as the last event.
func (o *eventWriter) problem(err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	content := status.Status()
	var object []byte
	var failure error
	if o.isProtobuf() {
		if object, failure = content.Marshal(); failure == nil {
			object = enveloped(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, object)
		}
	} else {
		content.APIVersion, content.Kind = "v1", "Status"
		object, failure = json.Marshal(content)
	}
	if failure == nil && o.writeEvent(o.buffered, string(watch.Error), object) == nil {
		_ = o.flush() // this was the last event
	}
}
