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

// WatchStream turns the body of a watch in JSON into a watch. It knows what kind of objects come, which a general client
// finds out for every one of them: reading events is most of what an engine does, and this way it costs a third.
func WatchStream(body io.ReadCloser, decode Decode) watch.Interface {
	reader := &eventReader{body: body, lines: newLines(body), decode: decode}
	return watch.NewStreamWatcher(reader, apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding"))
}

// OpenWatch sends a request for a watch.
func OpenWatch(ctx context.Context, request *rest.Request, options metav1.ListOptions, decode Decode) (watch.Interface, error) {
	options.Watch = true
	body, err := request.SpecificallyVersionedParams(&options, metav1.ParameterCodec, metav1.SchemeGroupVersion).
		SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return WatchStream(body, decode), nil
}

// longestEvent is far beyond what API servers store.
const longestEvent = 16 << 20

var errLongEvent = errors.New("a watch event is too long")

// eventReader reads events, of which API servers send one a line. It implements watch.Decoder.
type eventReader struct {
	body   io.ReadCloser
	lines  *bufio.Reader
	line   []byte // kept for the next one
	decode Decode
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
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	case watch.Error:
		decode = decodeStatus
	default:
		return "", nil, fmt.Errorf("reading a watch event: there are none of type %q", kind)
	}
	obj, err := decode(object)
	if err != nil {
		return "", nil, fmt.Errorf("reading the object of a watch event: %w", err)
	}
	return kind, obj, nil
}

// Close ends the stream.
func (r *eventReader) Close() { _ = r.body.Close() } // it was only read

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

// API servers write an event in this order. One that is written otherwise is read by the book.
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
