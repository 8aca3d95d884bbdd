package rebalance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/framer"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// verifier checks that the API servers of cells serve copies as they were stored. It watches the frozen objects of
// each kind that moves, which costs an API server a fraction of reading each. A copy that the watch does not show as
// it was stored is read.
type verifier struct {
	ctx context.Context // of the watches

	mu      sync.Mutex
	watches map[watchKey]*copyWatch
}

// watchKey is what a copyWatch watches.
type watchKey struct {
	cell  string
	kind  schema.GroupVersionKind
	media string
}

// newVerifier returns a verifier whose watches end with the context.
func newVerifier(ctx context.Context) *verifier {
	return &verifier{ctx: ctx, watches: map[watchKey]*copyWatch{}}
}

// verify returns an error unless the new cell's API server serves a copy as it was stored, or as the old cell serves
// the original.
func (v *verifier) verify(ctx context.Context, from, to *reader, object *cellstore.Object, stored cellstore.KV) error {
	if v.watch(to, object, stored).confirms(ctx, object, stored) {
		return nil
	}
	return verify(ctx, from, to, object, stored)
}

// watch returns the watch for a copy. A new one begins with this copy.
func (v *verifier) watch(to *reader, object *cellstore.Object, stored cellstore.KV) *copyWatch {
	key := watchKey{to.cell, object.GroupVersionKind, mediaOf(stored.Value)}
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.watches[key]
	if w != nil && !w.ended() {
		return w
	}
	w = &copyWatch{from: stored.ModRevision - 1, done: make(chan struct{}), served: map[objectKey][]byte{}, waiting: map[objectKey]chan struct{}{}}
	v.watches[key] = w
	go func() {
		defer close(w.done)
		if err := w.run(v.ctx, to, object, key.media); err != nil && v.ctx.Err() == nil {
			klog.FromContext(v.ctx).V(1).Info("copies cannot be watched, reading them one by one", "cell", to.cell, "kind", object.Kind, "err", err.Error())
		}
	}()
	return w
}

// copyWatch receives the frozen objects of one kind as an API server serves them.
type copyWatch struct {
	from int64         // it receives what is stored after this revision
	done chan struct{} // closed when the watch has ended

	mu sync.Mutex
	// served are the frozen objects that were received and not asked for yet.
	served  map[objectKey][]byte
	waiting map[objectKey]chan struct{}
}

type objectKey struct{ namespace, name string }

func (w *copyWatch) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// copyTimeout is how long to wait for a copy in the watch before it is read.
const copyTimeout = 2 * time.Second

// confirms waits for a copy and reports whether it is served as it was stored.
func (w *copyWatch) confirms(ctx context.Context, object *cellstore.Object, stored cellstore.KV) bool {
	if stored.ModRevision <= w.from {
		return false
	}
	key := objectKey{object.Namespace, object.Name}
	w.mu.Lock()
	_, found := w.served[key]
	var received chan struct{}
	if !found {
		received = make(chan struct{})
		w.waiting[key] = received
	}
	w.mu.Unlock()
	if !found {
		timer := time.NewTimer(copyTimeout)
		defer timer.Stop()
		select {
		case <-received:
		case <-w.done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	served := w.served[key]
	delete(w.served, key)
	delete(w.waiting, key)
	return bytes.Equal(bytes.TrimSpace(served), bytes.TrimSpace(stored.Value))
}

// apply takes an event of the watch.
func (w *copyWatch) apply(event *metav1.WatchEvent) error {
	object, err := cellstore.Parse(event.Object.Raw)
	if err != nil {
		return err
	}
	served, err := cellstore.WithoutVersion(event.Object.Raw)
	if err != nil {
		return err
	}
	key := objectKey{object.Namespace, object.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	if event.Type == "DELETED" { // it is no longer frozen
		delete(w.served, key)
		return nil
	}
	w.served[key] = served
	if received := w.waiting[key]; received != nil {
		close(received)
		delete(w.waiting, key)
	}
	return nil
}

// run watches until the watch ends, for whatever reason. The next copy starts another one.
func (w *copyWatch) run(ctx context.Context, to *reader, object *cellstore.Object, media string) error {
	path, err := to.collection(ctx, object)
	if err != nil {
		return err
	}
	body, err := to.client.Verb(http.MethodGet).AbsPath(path).SetHeader("Accept", media).
		Param("watch", "true").
		Param("labelSelector", names.RebalanceStatusLabel+"="+names.RebalanceMigrating).
		Param("resourceVersion", strconv.FormatInt(w.from, 10)).
		Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	next := eventsJSON(body)
	if media == mediaProto {
		next = eventsProto(body)
	}
	for {
		event, err := next()
		if err != nil {
			return err
		}
		if event.Type != "ADDED" && event.Type != "MODIFIED" && event.Type != "DELETED" {
			continue // an error ends the watch
		}
		if err := w.apply(event); err != nil {
			return err
		}
	}
}

func eventsJSON(body io.Reader) func() (*metav1.WatchEvent, error) {
	decoder := json.NewDecoder(body)
	return func() (*metav1.WatchEvent, error) {
		var event metav1.WatchEvent
		err := decoder.Decode(&event)
		return &event, err
	}
}

// largestFrame is larger than any event, which holds one object.
const largestFrame = 16 << 20

func eventsProto(body io.ReadCloser) func() (*metav1.WatchEvent, error) {
	frames := framer.NewLengthDelimitedFrameReader(body)
	buffer := make([]byte, 64<<10)
	return func() (*metav1.WatchEvent, error) {
		n := 0
		for {
			read, err := frames.Read(buffer[n:])
			n += read
			if err == nil {
				break
			}
			if err != io.ErrShortBuffer || len(buffer) >= largestFrame { //nolint:errorlint // the reader returns it as it is
				return nil, err
			}
			buffer = append(buffer, make([]byte, len(buffer))...)
		}
		var event metav1.WatchEvent
		err := event.Unmarshal(buffer[:n])
		return &event, err
	}
}
