package ingest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

const (
	// firstPause doubles up to longestPause while a stream cannot be opened. For what will not change soon, as a member that does not serve the
	// kind or does not let us read it, it doubles up to refusedPause.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
	refusedPause = 30 * time.Second
	// pageSize is how many objects are listed at once from a member that cannot stream them.
	pageSize = 500
	// readBuffer is what is read from a member before it is needed.
	readBuffer = 64 << 10
	// maxPage bounds a page of a list, and maxStatus an error.
	maxPage   = 256 << 20
	maxStatus = 64 << 10
)

// stream keeps a feed up to date with the objects of a resource.
type stream struct {
	client *http.Client
	base   *url.URL
	path   string
	feed   *feed
	// failed is told why the member could not be followed.
	failed func(error)
	// await returns when it makes sense to try, which is not while the member gives no signs of life.
	await func(context.Context)

	// metadataOnly leaves out all but the metadata of objects.
	metadataOnly bool
	// lists is set for a member that cannot send everything in a watch.
	lists bool

	mu     sync.Mutex
	cancel context.CancelFunc // of the request under way
}

// run follows until the context ends.
func (s *stream) run(ctx context.Context) {
	position, pause := "", firstPause
	for ctx.Err() == nil {
		s.await(ctx)
		next, err := s.attempt(ctx, position)
		switch {
		case err == nil:
			position, pause = next, firstPause
			continue
		case ctx.Err() != nil:
			return
		case isExpired(err) && position != "":
			// Not a failure: the member has forgotten where we were, and we look at everything again.
			position = ""
			continue
		case !s.lists && position == "" && cannotStream(err):
			s.lists = true
			continue
		}
		position = next
		s.feed.lost(time.Now())
		s.failed(err)
		sleep(ctx, pause)
		longest := longestPause
		if isRefused(err) {
			longest = refusedPause
		}
		pause = min(2*pause, longest)
	}
}

// attempt is advance until it is interrupted.
func (s *stream) attempt(ctx context.Context, position string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	s.cancel = cancel
	s.mu.Unlock()
	return s.advance(ctx, position)
}

// interrupt ends the request under way; the stream goes on from where it was.
func (s *stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// advance lists or watches and returns how far it came.
func (s *stream) advance(ctx context.Context, position string) (string, error) {
	if position == "" && s.lists {
		return s.list(ctx)
	}
	return s.watch(ctx, position)
}

// watch follows a watch to its end. Without a position it begins with everything there is.
func (s *stream) watch(ctx context.Context, position string) (string, error) {
	// Watches end at different times, so that they are not all opened again together.
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
	if initial {
		s.feed.begin()
	} else if !s.feed.resumed() {
		return "", nil
	}
	events := frames{reader: bufio.NewReaderSize(response.Body, readBuffer)}
	for n := 0; ; n++ {
		frame, err := events.next()
		switch {
		case errors.Is(err, io.EOF) && initial:
			return "", fmt.Errorf("watching: %w before everything was sent", io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF) && n == 0 && time.Since(began) < time.Second:
			return position, errors.New("watching: the watch was closed at once")
		case errors.Is(err, io.EOF):
			return position, nil
		case err != nil:
			return position, fmt.Errorf("watching: %w", err)
		}
		version, end, err := s.take(frame)
		if err != nil {
			if isExpired(err) {
				return "", err
			}
			return position, fmt.Errorf("watching: %w", err)
		}
		if initial && end {
			s.feed.end()
			initial = false
		}
		if !initial {
			position = version
		}
	}
}

// take puts an event into the feed.
func (s *stream) take(frame []byte) (version string, end bool, err error) {
	e, err := parseEvent(frame)
	if err != nil {
		return "", false, err
	}
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

// note tells of an object that could not be taken in. The others are not to suffer from it.
func (s *stream) note(err error) {
	if err != nil {
		s.failed(err)
	}
}

// list lists everything there is, in pages.
func (s *stream) list(ctx context.Context) (string, error) {
	s.feed.begin()
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		p, err := s.page(ctx, query)
		if err != nil {
			return "", fmt.Errorf("listing: %w", err)
		}
		for _, item := range p.items {
			s.note(s.feed.apply(item))
		}
		if p.marker == "" {
			s.feed.end()
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
	return parsePage(body)
}

// get asks the member. An answer that is an error is returned as one.
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
	return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "", string(body), 0, true)
}

func (s *stream) accept(query url.Values) string {
	switch {
	case !s.metadataOnly:
		return runtime.ContentTypeProtobuf
	case query.Has("watch"):
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	default:
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
}

// statuses reads the errors of members.
var statuses = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	return protobuf.NewSerializer(scheme, scheme)
}()

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// cannotStream reports whether a member is too old to send everything in a watch.
func cannotStream(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// isRefused reports whether a member has looked at the request and will not serve it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// sleep waits, a little longer or shorter than told so that many do not wake up at once.
func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause/2 + time.Duration(rand.Int64N(int64(pause))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// explain logs why a member is not followed, once for each new reason.
func explain(ctx context.Context, path string) func(error) {
	var last string
	return func(err error) {
		if err.Error() == last || errors.Is(err, context.Canceled) {
			return
		}
		last = err.Error()
		logger := klog.FromContext(ctx)
		switch {
		case apierrors.IsForbidden(err):
			logger.Info("The member does not let us read; if that stays so, repeat `cellplane join` to renew our rights there", "path", path, "err", err)
		case fleet.Unreachable(err):
			logger.V(2).Info("The member cannot be followed", "path", path, "err", err)
		default:
			logger.Info("The member cannot be followed", "path", path, "err", err)
		}
	}
}
