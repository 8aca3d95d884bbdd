package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// firstPause doubles up to longestPause while a stream cannot be opened. It doubles up to refusedPause if the member does
	// not serve the kind or denies access, because that seldom changes soon.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	refusedPause = 30 * time.Second
	// longestRelistPause bounds the pause before everything is read again because a watch has expired. The pause starts from
	// firstPause after a watch that lived for steadyWatch.
	longestRelistPause = 30 * time.Second
	steadyWatch        = time.Minute
	// pageSize is the page size of lists from a member that cannot stream them.
	pageSize = 500
	// readBuffer is the size of the read buffer of a watch.
	readBuffer = 64 << 10
	// maxPage bounds a page of a list, and maxStatus an error response.
	maxPage   = 256 << 20
	maxStatus = 64 << 10
)

// relistBackoff returns the pauses before relists that follow an expired watch.
func relistBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: math.MaxInt, Cap: longestRelistPause}
}

// stream keeps a feed up to date with the objects of a resource.
//
// It is not a client-go Reflector because it passes encoded objects on: a Reflector decodes every object.
type stream struct {
	client *http.Client
	base   *url.URL
	path   string
	feed   *feed
	// failed is called with each reason why the member could not be watched.
	failed func(error)
	// await blocks while the member is unreachable.
	await func(context.Context)

	// metadataOnly requests nothing but the metadata of objects.
	metadataOnly bool
	// json is set if the objects have no protobuf encoding.
	json bool
	// namespaces are those whose objects are wanted; nil means all.
	namespaces []string
	// began is called when everything has been read, and when a watch is resumed; it may be nil.
	began func()
	// lists is set if the member cannot send the initial state in a watch.
	lists bool
	// watchingSince is when the current request had sent the initial state, or zero.
	watchingSince time.Time

	mu     sync.Mutex
	cancel context.CancelFunc // of the current request
}

// run watches until the context ends.
func (s *stream) run(ctx context.Context) {
	position, pause, relist := "", firstPause, relistBackoff()
	expiries := 0 // in a row
	for ctx.Err() == nil {
		s.await(ctx)
		s.watchingSince = time.Time{}
		next, err := s.attempt(ctx, position)
		if !s.watchingSince.IsZero() && time.Since(s.watchingSince) >= steadyWatch {
			relist, expiries = relistBackoff(), 0
		}
		switch {
		case err == nil:
			position, pause = next, firstPause
			continue
		case ctx.Err() != nil:
			return
		case isExpired(err):
			// One expiry is no failure: the member no longer has the events since our position. If it repeats, reading everything
			// takes longer than the member keeps its events, and the objects shown are older than usual.
			if expiries++; expiries > 1 {
				s.feed.lost(time.Now())
				s.failed(fmt.Errorf("watches expire before they can start; the member keeps too few events for so many objects: %w", err))
			}
			position = ""
			sleep(ctx, relist.Step())
			continue
		case !s.lists && position == "" && cannotStream(err):
			s.lists = true
			continue
		}
		position = next
		s.feed.lost(time.Now())
		s.failed(err)
		sleep(ctx, pause/2+rand.N(pause)) // jitter keeps many streams apart
		longest := longestPause
		if isRefused(err) {
			longest = refusedPause
		}
		pause = min(2*pause, longest)
	}
}

// attempt calls advance with a context that interrupt cancels.
func (s *stream) attempt(ctx context.Context, position string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	return s.advance(ctx, position)
}

// interrupt ends the current request; the stream resumes from its position.
func (s *stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// advance lists or watches, and returns the position it reached.
func (s *stream) advance(ctx context.Context, position string) (string, error) {
	if position == "" && s.lists {
		return s.list(ctx)
	}
	return s.watch(ctx, position)
}

// watch reads a watch to its end. Without a position the watch starts with the initial state.
func (s *stream) watch(ctx context.Context, position string) (string, error) {
	// Random timeouts keep watches from being reopened all at once.
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(300 + rand.IntN(300))}}
	initial := position == ""
	if initial {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	} else {
		query.Set("resourceVersion", position)
	}
	began := time.Now()
	response, err := s.get(ctx, query)
	if err != nil {
		return position, fmt.Errorf("watching: %w", err)
	}
	defer response.Body.Close()
	switch {
	case initial:
		s.feed.begin(time.Now())
	case !s.feed.resumed():
		return "", nil
	default:
		s.begun()
	}
	events := s.events(bufio.NewReaderSize(response.Body, readBuffer))
	for n := 0; ; n++ {
		e, err := events.event()
		switch {
		case errors.Is(err, io.EOF) && initial:
			return "", fmt.Errorf("watching: %w before the initial state was complete", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF) && n == 0 && time.Since(began) < time.Second:
			return position, errors.New("watching: the watch was closed at once")
		case errors.Is(err, io.EOF):
			return position, nil
		case err != nil:
			return position, fmt.Errorf("watching: %w", err)
		}
		version, end, err := s.take(e)
		if err != nil {
			if isExpired(err) {
				return "", err
			}
			return position, fmt.Errorf("watching: %w", err)
		}
		if initial && end {
			if !s.feed.end() {
				return "", nil
			}
			initial = false
			s.begun()
		}
		if !initial {
			position = version
		}
	}
}

// begun notes that the feed is up to date and watched.
func (s *stream) begun() {
	s.watchingSince = time.Now()
	if s.began != nil {
		s.began()
	}
}

// events returns the events of a watch.
func (s *stream) events(from io.Reader) interface{ event() (event, error) } {
	if s.inJSON() {
		return newJSONEvents(from)
	}
	return &frames{reader: from}
}

// inJSON reports whether objects are requested in JSON. Metadata alone has a protobuf encoding whatever the kind.
func (s *stream) inJSON() bool { return s.json && !s.metadataOnly }

// wants reports whether an object is in a namespace that is wanted.
func (s *stream) wants(raw []byte) bool {
	return s.namespaces == nil || slices.Contains(s.namespaces, namespaceOf(raw))
}

// take applies an event to the feed.
func (s *stream) take(e event) (version string, end bool, err error) {
	if watch.EventType(e.kind) == watch.Error {
		var status metav1.Status
		if err := status.Unmarshal(e.raw); err != nil {
			return "", false, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return "", false, &apierrors.StatusError{ErrStatus: status}
	}
	if version, end, err = position(e.raw); err != nil {
		return "", false, err
	}
	if version == "" {
		return "", false, fmt.Errorf("%w: an event without a resourceVersion", errMalformed)
	}
	if kind := watch.EventType(e.kind); kind != watch.Bookmark && !s.wants(e.raw) {
		return version, end, nil
	}
	switch watch.EventType(e.kind) {
	case watch.Added, watch.Modified:
		s.note(s.feed.apply(e.raw))
	case watch.Deleted:
		s.note(s.feed.delete(e.raw))
	case watch.Bookmark:
	default:
		err = fmt.Errorf("%w: an event of type %.20q", errMalformed, e.kind)
	}
	return version, end, err
}

// note reports an object that the feed refused. The other objects are not affected.
func (s *stream) note(err error) {
	if err != nil {
		s.failed(err)
	}
}

// list lists all objects, in pages.
func (s *stream) list(ctx context.Context) (string, error) {
	s.feed.begin(time.Now())
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		p, err := s.page(ctx, query)
		if err != nil {
			return "", fmt.Errorf("listing: %w", err)
		}
		for _, item := range p.items {
			if s.wants(item) {
				s.note(s.feed.apply(item))
			}
		}
		if p.marker == "" {
			if !s.feed.end() {
				return "", nil
			}
			return p.version, nil
		}
		query.Set("continue", p.marker)
	}
}

func (s *stream) page(ctx context.Context, query url.Values) (page, error) {
	response, err := s.get(ctx, query)
	if err != nil {
		return page{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage+1))
	if err != nil {
		return page{}, err
	}
	if len(body) > maxPage {
		return page{}, fmt.Errorf("%w: a page of more than %d bytes", errMalformed, maxPage)
	}
	if s.inJSON() {
		return parseJSONPage(body)
	}
	return parsePage(body)
}

// get sends a request to the member. An error response is returned as an error.
func (s *stream) get(ctx context.Context, query url.Values) (*http.Response, error) {
	at := *s.base
	at.Path += s.path
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", s.accept(query))
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return nil, err
	}
	if object, _, err := statuses.Decode(body, nil, nil); err == nil {
		if status, ok := object.(*metav1.Status); ok {
			return nil, &apierrors.StatusError{ErrStatus: *status}
		}
	}
	if status, ok := jsonStatus(body); ok {
		return nil, &apierrors.StatusError{ErrStatus: *status}
	}
	return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "", string(body), 0, true)
}

func (s *stream) accept(query url.Values) string {
	switch {
	case s.inJSON():
		return runtime.ContentTypeJSON
	case !s.metadataOnly:
		return runtime.ContentTypeProtobuf
	case query.Has("watch"):
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	default:
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
}

// statuses decodes error responses of members.
var statuses = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return protobuf.NewSerializer(scheme, scheme)
}()

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// cannotStream reports whether a member is too old to send the initial state in a watch.
func cannotStream(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// isRefused reports whether a member has understood the request and will not serve it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// sleep waits, or returns when the context ends.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// explain logs why a member cannot be watched, once for each new reason.
func explain(ctx context.Context, path string) func(error) {
	return fleet.EachReason(func(err error) {
		logger := klog.FromContext(ctx)
		switch {
		case errors.Is(err, context.Canceled):
		case apierrors.IsForbidden(err):
			logger.Info("the member denies read access; if this persists, run `cellplane join` again to renew our access", "path", path, "err", err)
		case fleet.Unreachable(err):
			logger.V(2).Info("cannot watch the member", "path", path, "err", err)
		default:
			logger.Info("cannot watch the member", "path", path, "err", err)
		}
	})
}
