package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// WatchStream turns the body of a watch in JSON into a watch. It knows the kind of the objects, which a general client has
// to find out for each of them. Reading events is most of what an engine does; this reduces the cost to a third.
func WatchStream(body io.ReadCloser, decode Decode, known Known) watch.Interface {
	reader := &eventReader{body: body, lines: newLines(body), decode: decode, known: known}
	return watch.NewStreamWatcher(reader, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding"))
}

// OpenWatch sends a request for a watch.
func OpenWatch(ctx context.Context, request *rest.Request, options metav1.ListOptions, decode Decode, known Known) (watch.Interface, error) {
	options.Watch = true
	body, err := request.SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.SchemeGroupVersion).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return WatchStream(body, decode, known), nil
}

// longestEvent is far more than API servers store.
const longestEvent = 16 << 20

var errLongEvent = errors.New("a watch event is too long")

// eventReader reads events, which API servers send one per line. It implements watch.Decoder.
type eventReader struct {
	body   io.ReadCloser
	lines  *bufio.Reader
	line   []byte // reused
	decode Decode
	known  Known // may be nil
}

func newLines(body io.Reader) *bufio.Reader { return bufio.NewReaderSize(body, 16<<10) }

// Decode returns the next event.
func (r *eventReader) Decode() (watch.EventType, runtime.Object, error) {
	line, err := r.next()
	if err != nil {
		return "", nil, err
	}
	kind, object, err := split(line)
	if err != nil {
		return "", nil, fmt.Errorf("reading a watch event: %w", err)
	}
	decode := r.decode
	switch kind {
	case watch.Added, watch.Modified:
		if p := r.pass(object); p != nil {
			return kind, p, nil
		}
	case watch.Deleted, watch.Bookmark:
	case watch.Error:
		decode = decodeStatus
	default:
		return "", nil, fmt.Errorf("reading a watch event: unknown type %q", kind)
	}
	obj, err := decode(object)
	if err != nil {
		return "", nil, fmt.Errorf("reading the object of a watch event: %w", err)
	}
	return kind, obj, nil
}

// passed stands for an object that need not be decoded. [Watch] only needs its version.
type passed struct{ metav1.PartialObjectMetadata }

// pass returns a placeholder for an object that is known already, for example from the answer to our own write; nil for others. It
// is not for deletions, though they may have a known version: the answer to the write that removes the last finalizer has it too.
func (r *eventReader) pass(object []byte) *passed {
	if r.known == nil {
		return nil
	}
	h, ok := skim(object)
	if !ok || len(h.name) == 0 || !r.known(string(h.namespace), string(h.name), string(h.version)) {
		return nil
	}
	return &passed{metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: string(h.version)}}}
}

// Close ends the stream.
func (r *eventReader) Close() { _ = r.body.Close() } // errors do not matter after reading

// next returns the next line that is not empty. It is valid until the next call.
func (r *eventReader) next() ([]byte, error) {
	r.line = r.line[:0]
	for {
		part, err := r.lines.ReadSlice('\n')
		r.line = append(r.line, part...)
		switch {
		case len(r.line) > longestEvent:
			return nil, errLongEvent
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(r.line)) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(bytes.TrimSpace(r.line)) == 0:
			r.line = r.line[:0]
		default:
			return r.line, nil
		}
	}
}

// API servers write an event in this order. Anything else is parsed as JSON.
var (
	beforeType   = []byte(`{"type":"`)
	beforeObject = []byte(`","object":`)
)

// split returns the type of an event and its object.
func split(line []byte) (watch.EventType, []byte, error) {
	line = bytes.TrimSpace(line)
	if rest, ok := bytes.CutPrefix(line, beforeType); ok {
		kind, object, ok := bytes.Cut(rest, beforeObject)
		if object, closed := bytes.CutSuffix(object, []byte("}")); ok && closed && len(kind) <= len(watch.Bookmark) {
			return watch.EventType(kind), object, nil
		}
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	err := json.Unmarshal(line, &event)
	return event.Type, event.Object, err
}

func decodeStatus(object []byte) (runtime.Object, error) {
	status := &metav1.Status{}
	return status, utiljson.Unmarshal(object, status)
}
