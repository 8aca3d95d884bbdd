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

// verification checks that the API servers of cells serve copies as they were stored. It watches the frozen objects of each kind that
// moves: that costs an API server a fraction of being asked for each. What the watch does not show, or not as it was stored, is asked for.
type verification struct {
	ctx context.Context // of the watches

	mu        sync.Mutex
	witnesses map[witnessed]*witness
}

// witnessed is what a witness watches.
type witnessed struct {
	cell  string
	kind  schema.GroupVersionKind
	media string
}

// newVerification returns one whose watches end with the context.
func newVerification(ctx context.Context) *verification {
	return &verification{ctx: ctx, witnesses: map[witnessed]*witness{}}
}

// verify returns an error unless the new cell's API server serves a copy as it was stored, or as the old cell serves the original.
func (v *verification) verify(ctx context.Context, from, to *reader, object *cellstore.Object, stored cellstore.KV) error {
	if v.witness(to, object, stored).sees(ctx, object, stored) {
		return nil
	}
	return verify(ctx, from, to, object, stored)
}

// witness returns the witness for a copy. One that is made now begins with this copy.
func (v *verification) witness(to *reader, object *cellstore.Object, stored cellstore.KV) *witness {
	key := witnessed{to.cell, object.GroupVersionKind, mediaOf(stored.Value)}
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.witnesses[key]
	if w != nil && !w.ended() {
		return w
	}
	w = &witness{from: stored.ModRevision - 1, over: make(chan struct{}), served: map[objectKey][]byte{}, waiting: map[objectKey]chan struct{}{}}
	v.witnesses[key] = w
	go func() {
		defer close(w.over)
		if err := w.watch(v.ctx, to, object, key.media); err != nil && v.ctx.Err() == nil {
			klog.FromContext(v.ctx).V(1).Info("Copies are verified one by one, as they cannot be watched", "cell", to.cell, "kind", object.Kind, "reason", err.Error())
		}
	}()
	return w
}

// witness sees what an API server serves of one kind while it is frozen.
type witness struct {
	from int64         // it sees what is stored later than this
	over chan struct{} // closed when it sees nothing more

	mu sync.Mutex
	// served are the frozen objects as they were stored, if the API server is to be believed, until somebody has asked for them.
	served  map[objectKey][]byte
	waiting map[objectKey]chan struct{}
}

type objectKey struct{ namespace, name string }

func (w *witness) ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// seenWithin is how long a copy may take to be seen before it is asked for.
const seenWithin = 2 * time.Second

// sees reports whether a copy is served as it was stored. It waits for the copy to be seen at all.
func (w *witness) sees(ctx context.Context, object *cellstore.Object, stored cellstore.KV) bool {
	if stored.ModRevision <= w.from {
		return false
	}
	key := objectKey{object.Namespace, object.Name}
	w.mu.Lock()
	_, seen := w.served[key]
	var noticed chan struct{}
	if !seen {
		noticed = make(chan struct{})
		w.waiting[key] = noticed
	}
	w.mu.Unlock()
	if !seen {
		timer := time.NewTimer(seenWithin)
		defer timer.Stop()
		select {
		case <-noticed:
		case <-w.over:
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

// note takes what the API server has sent.
func (w *witness) note(event *metav1.WatchEvent) error {
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
	if event.Type == "DELETED" { // it is frozen no more
		delete(w.served, key)
		return nil
	}
	w.served[key] = served
	if noticed := w.waiting[key]; noticed != nil {
		close(noticed)
		delete(w.waiting, key)
	}
	return nil
}

// watch takes what is sent until the watch ends, for whatever reason. The next copy makes another witness.
func (w *witness) watch(ctx context.Context, to *reader, object *cellstore.Object, media string) error {
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
		if err := w.note(event); err != nil {
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

// largestFrame is more than any event: it holds one object.
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
