package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
	"github.com/cellplane/cellplane/internal/watchmerge"
)

// minWatch is the shortest duration of a watch without a timeout. It is randomized up to twice that, so that clients do not reconnect all at
// once.
const minWatch = 30 * time.Minute

// watch serves a watch over cells.
func (rt *Router) watch(w http.ResponseWriter, r *http.Request, c *call) {
	q, err := rt.readQuery(r, c)
	if err == nil && !q.resumable() {
		err = expired()
	}
	if err != nil && !apierrors.IsResourceExpired(err) {
		forward.WriteError(w, r, err)
		return
	}
	accept, yaml, negotiationErr := acceptable(r)
	if negotiationErr == nil && yaml {
		negotiationErr = notAcceptable("a watch cannot be served as YAML")
	}
	if negotiationErr != nil {
		forward.WriteError(w, r, negotiationErr)
		return
	}
	if err != nil {
		rt.expire(w, accept, err)
		return
	}
	stream := &watchStream{rt: rt, w: w, r: r, c: c, q: q, accept: accept, moves: rt.movesOf(c, q), opened: time.Now()}
	stream.begin, stream.send = stream.beginAnswer, stream.write
	stream.until = stream.opened.Add(stream.timeout())
	switch err := stream.run(); {
	case errors.Is(err, errUnsampled):
		rt.expire(w, accept, expired())
	case err != nil && !stream.begun:
		forward.WriteError(w, r, asWatchStatus(err))
	}
}

// resumable reports whether the position, if there is one, has a version for every cell.
func (q *query) resumable() bool {
	for _, cell := range q.cells {
		if q.at != nil && q.at.Versions[cell] == 0 && !ptr.Deref(q.SendInitialEvents, false) {
			return false
		}
	}
	return true
}

// expire answers a watch from an expired position. It has to be an event: clients retry the HTTP status 410 forever.
func (rt *Router) expire(w http.ResponseWriter, accept string, err error) {
	f, contentType := form{}, "application/json"
	if first, _ := formOf(firstClause(accept)); first.encoding == splice.Protobuf {
		f, contentType = first, splice.ProtobufContentType+";stream=watch"
	}
	var status apierrors.APIStatus
	errors.As(err, &status)
	event, encodeErr := splice.NewErrorEvent(f.encoding, status.Status())
	if encodeErr != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(event.Append(nil, "")) // the client may have disconnected
}

func firstClause(accept string) string {
	for i := range len(accept) {
		if accept[i] == ',' {
			return accept[:i]
		}
	}
	return accept
}

func asWatchStatus(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return apierrors.NewInternalError(err)
}

// watchStream is one watch over cells.
type watchStream struct {
	rt     *Router
	w      http.ResponseWriter
	r      *http.Request
	c      *call
	q      *query
	accept string
	moves  *moves

	// begin is called before the first event, and send with events.
	begin func(form)
	send  func([]watchmerge.Output) error
	// shared is set for a stream of the gateway itself, which many watches read.
	shared bool
	// alone is set if the watch must not join a shared stream again, joined once it has, and tried when it has tried to start one.
	alone, tried bool
	joined       *membership
	streamKey    streamKey
	// past are the revisions that the cells had when the watch opened them, 0 before; it is nil unless it merges them itself while objects move.
	past []atomic.Uint64
	// reached is when the watch had reached the position at which it was continued by another topology.
	reached time.Time
	// marked is the position of the last bookmark from a shared stream.
	marked []uint64

	// form is that of the answer, once it has begun.
	form   form
	begun  bool
	buffer []byte
	// opened is when the watch began, and until when it ends.
	opened, until time.Time
}

// run serves the watch, by one topology after the other.
func (s *watchStream) run() error {
	for {
		at, err := s.serve()
		if err != nil || at == nil || !s.carryOn(*at) {
			return err
		}
	}
}

// serve serves the watch by the present topology: by a shared stream if it can join one, otherwise by merging the cells' watches itself until it
// can. It returns a position if the watch has to be continued by another topology.
func (s *watchStream) serve() (*position.Position, error) {
	if s.join(); s.joined == nil {
		if s.q.unsampled {
			return nil, errUnsampled
		}
		if at, err := s.merge(s.r.Context()); err != nil || s.joined == nil {
			return at, err
		}
	}
	if at, alone := s.follow(); !alone {
		return at, nil
	}
	return s.merge(s.r.Context())
}

// merge merges the cells' watches. It opens one stream first, since the merger needs its encoding. It returns a position if the watch has to
// be continued by another topology.
func (s *watchStream) merge(ctx context.Context) (*position.Position, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	firstCell := s.firstCell()
	first, err := s.open(ctx, firstCell, s.startVersion(firstCell), s.initial())
	if err != nil && !errors.Is(err, watchmerge.ErrUnavailable) && !errors.Is(err, watchmerge.ErrExpired) {
		return nil, err
	}
	if errors.Is(err, watchmerge.ErrUnavailable) && s.initial() {
		return nil, err
	}
	f := s.form
	if !s.begun {
		f = s.guessForm(first)
	}
	merger, err := watchmerge.New(s.options(f), time.Now())
	if err != nil {
		return nil, err
	}
	end := s.ending(ctx)
	s.past = make([]atomic.Uint64, s.c.width())
	driver := watchmerge.Driver{
		Merger: merger,
		End:    end,
		Open: func(ctx context.Context, cell int, version uint64, initial bool) (watchmerge.Stream, error) {
			if slots.Index(cell) == firstCell && first != nil {
				stream := first
				first = nil
				context.AfterFunc(ctx, func() { _ = stream.Body.Close() }) // it was opened without this context
				return s.events(ctx, slots.Index(cell), stream, initial)
			}
			stream, err := s.open(ctx, slots.Index(cell), strconv.FormatUint(version, 10), initial)
			if err != nil {
				return nil, err
			}
			return s.events(ctx, slots.Index(cell), stream, initial)
		},
		Begin: func() { s.begin(f) },
		Send:  s.send,
	}
	if !s.shared {
		driver.Timeout = time.Until(s.until)
	}
	if s.shareable() {
		driver.Leave = func(at position.Position) bool { return s.leave(at, merger) }
	}
	if err := driver.Run(ctx); err != nil || !s.goesOn(end, merger) {
		return nil, err
	}
	at := merger.Position()
	s.reached = time.Now()
	return &at, nil
}

// omitsObjects reports whether the client does not want the objects in the rows of a Table.
func (s *watchStream) omitsObjects() bool { return s.q.values.Get("includeObject") == "None" }

// firstCell returns a cell that may be read before all others.
func (s *watchStream) firstCell() slots.Index {
	stages := s.c.view.Stages(s.c.placement)
	return slices.MinFunc(s.q.cells, func(a, b slots.Index) int { return cmp.Compare(stages[a], stages[b]) })
}

// initial reports whether the watch begins with the present objects.
func (s *watchStream) initial() bool {
	return s.q.at == nil || ptr.Deref(s.q.SendInitialEvents, false)
}

func (s *watchStream) startVersion(cell slots.Index) string {
	if s.q.at == nil {
		return "0"
	}
	return strconv.FormatUint(s.q.at.Versions[cell], 10)
}

func (s *watchStream) options(f form) watchmerge.Options {
	view := s.c.view
	options := watchmerge.Options{
		Epoch:            view.Epoch(),
		Cells:            s.c.width(),
		Left:             map[int]uint64{},
		InitialEventsEnd: ptr.Deref(s.q.SendInitialEvents, false),
		Bookmarks:        s.q.AllowWatchBookmarks,
		Encoding:         f.encoding,
	}
	if !s.initial() {
		options.Start = s.q.at.Versions
	}
	if s.moves.Any() {
		options.Moves = s.moves
	}
	if s.c.showsVersions() {
		options.Version = func(cell int, object *splice.Object) (string, bool) {
			return s.rt.version(s.c, slots.Index(cell), object.Namespace, object.Name, object.ResourceVersion)
		}
	}
	if view.Moving() {
		options.Stages = view.Stages(s.c.placement)
	}
	left := view.Left()
	for cell, least := range left {
		options.Left[int(cell)] = least
	}
	asked := map[slots.Index]bool{}
	for _, cell := range s.q.cells {
		asked[cell] = true
	}
	for i := range options.Cells {
		if _, hasLeft := left[slots.Index(i)]; !asked[slots.Index(i)] && !hasLeft {
			options.Absent = append(options.Absent, i)
		}
	}
	return options
}

// timeout returns how long the watch lasts.
func (s *watchStream) timeout() time.Duration {
	if s.q.TimeoutSeconds != nil && *s.q.TimeoutSeconds > 0 {
		return time.Duration(*s.q.TimeoutSeconds) * time.Second
	}
	return minWatch + rand.N(minWatch)
}

// open starts the watch of a cell.
func (s *watchStream) open(ctx context.Context, cell slots.Index, version string, initial bool) (*http.Response, error) {
	response, err := s.ask(ctx, cell, s.query(cell, version, initial), initial)
	if err != nil && s.left(cell) {
		return nil, watchmerge.ErrExpired // the cell may never come back
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, s.refusal(ctx, cell, response)
}

// ask sends the request for a cell's watch. If the watch begins with the present objects, it waits for a definition that has not reached the
// cell yet, as a list does.
func (s *watchStream) ask(ctx context.Context, cell slots.Index, query url.Values, initial bool) (*http.Response, error) {
	request := s.r.Clone(ctx)
	request.Header.Set("Accept", s.accept)
	request.Header.Del("Accept-Encoding")
	if !initial {
		return s.rt.ask(ctx, request, s.c, cell, query, nil)
	}
	request.URL = &url.URL{Path: s.r.URL.Path, RawQuery: query.Encode()}
	return s.rt.insist(request, s.c, cell, nil)
}

// left reports whether a cell has left in the epoch of the watch.
func (s *watchStream) left(cell slots.Index) bool {
	_, left := s.c.view.Left()[cell]
	return left
}

// refusal returns the error for a cell that does not serve the watch.
func (s *watchStream) refusal(ctx context.Context, cell slots.Index, response *http.Response) error {
	lacking := false
	if response.StatusCode == http.StatusNotFound {
		var err error
		if lacking, err = s.rt.lacking(ctx, s.c, cell, response); err != nil {
			return fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, err)
		}
	}
	status := statusOf(response)
	switch {
	case response.StatusCode == http.StatusGone || lacking && s.left(cell):
		return watchmerge.ErrExpired
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, status)
	case lacking:
		// The definition is still being copied. A deleted one is removed from the hub first, and then the watch ends below.
		return fmt.Errorf("%w: %w", watchmerge.ErrUnavailable, status)
	default:
		return fmt.Errorf("%s refused: %w", s.c.view.Name(cell), status)
	}
}

func (s *watchStream) query(cell slots.Index, version string, initial bool) url.Values {
	query := url.Values{}
	for key, values := range s.q.values {
		query[key] = values
	}
	if s.omitsObjects() {
		query["includeObject"] = []string{"Metadata"}
	}
	query["allowWatchBookmarks"] = []string{"true"}
	query["timeoutSeconds"] = []string{s.secondsFor(cell)}
	if !initial {
		query["resourceVersion"] = []string{version}
		delete(query, "sendInitialEvents")
		delete(query, "resourceVersionMatch")
		return query
	}
	query["sendInitialEvents"] = []string{"true"}
	query["resourceVersionMatch"] = []string{string(metav1.ResourceVersionMatchNotOlderThan)}
	query["resourceVersion"] = []string{s.q.versionFor(cell)}
	return query
}

// secondsFor returns the timeout of a cell's watch. The gateway itself ends the watch for all cells at once, but API servers send a bookmark
// two seconds before their timeout, which is the last one of a watch.
func (s *watchStream) secondsFor(cell slots.Index) string {
	if s.left(cell) {
		return lastReads
	}
	left := time.Until(s.until).Round(time.Second)
	if s.shared {
		left = minWatch + rand.N(minWatch)
	}
	return strconv.Itoa(max(int(left/time.Second), 1))
}

// guessForm returns the form of the first stream, or the one that the client prefers if there is no stream yet.
func (s *watchStream) guessForm(first *http.Response) form {
	contentType := firstClause(s.accept)
	if first != nil {
		contentType = first.Header.Get("Content-Type")
	}
	f, _ := formOf(contentType)
	return f
}

// beginAnswer sends the status and the headers to the client.
func (s *watchStream) beginAnswer(f form) {
	if s.begun {
		return
	}
	contentType := "application/json"
	if f.encoding == splice.Protobuf {
		contentType = splice.ProtobufContentType + ";stream=watch"
	}
	s.w.Header().Set("Content-Type", contentType)
	s.w.Header().Set("Cache-Control", "no-cache, private")
	s.w.WriteHeader(http.StatusOK)
	s.form, s.begun = f, true
	s.flush()
}

func (s *watchStream) flush() { _ = http.NewResponseController(s.w).Flush() } // the client may have disconnected

// lastReads is the timeout, in seconds, of a watch of a cell that has left.
const lastReads = "3"

// errUnsampled ends a watch from a version that is neither in the history of a shared stream nor has a position.
var errUnsampled = errors.New("it is not known what followed the version")

// errSuperseded ends a watch whose initial events were read by an outdated view.
var errSuperseded = errors.New("the topology of the cells has changed")

// write writes events. The end of the initial events claims that they are complete, which has to be confirmed first.
func (s *watchStream) write(events []watchmerge.Output) error {
	for _, output := range events {
		if output.Event.Type == splice.Bookmark && output.Event.InitialEventsEnd {
			if err := s.rt.confirmAll(s.r.Context(), s.c, s.q.cells); err != nil {
				return fmt.Errorf("%w: %w", errSuperseded, err)
			}
		}
	}
	s.buffer = s.buffer[:0]
	for _, output := range events {
		s.buffer = s.encode(s.buffer, output)
	}
	if _, err := s.w.Write(s.buffer); err != nil {
		return err
	}
	if cap(s.buffer) > maxKeptBuffer {
		s.buffer = nil // there are many idle watches
	}
	s.flush()
	return nil
}

// encode appends an event as the client wants it.
func (s *watchStream) encode(dst []byte, output watchmerge.Output) []byte {
	if s.omitsObjects() {
		return output.Event.AppendWithoutObjects(dst, output.Version)
	}
	return output.Event.Append(dst, output.Version)
}

// maxKeptBuffer is the largest buffer that a watch keeps for its next events.
const maxKeptBuffer = 16 << 10
