package fleet

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 100<<10) // longer than any buffer
	for name, test := range map[string]struct {
		stream string
		want   []string
		err    string
	}{
		"in the order of API servers": {
			stream: `{"type":"ADDED","object":{"metadata":{"name":"a"},"n":1}}` + "\n" + `{"type":"BOOKMARK","object":{"metadata":{"name":"b"},"n":2}}` + "\n",
			want:   []string{"ADDED a 1", "BOOKMARK b 2"}, err: "EOF",
		},
		"in another order, with spaces and empty lines": {
			stream: "\n" + `{ "object": {"metadata": {"name": "a"}, "n": 1}, "type": "DELETED" }` + "\r\n\n",
			want:   []string{"DELETED a 1"}, err: "EOF",
		},
		"with something after the object": {
			stream: `{"type":"ADDED","object":{"metadata":{"name":"a"},"n":1},"more":{}}` + "\n", err: "reading the object of a watch event",
		},
		"words of the format inside an object": {
			stream: `{"type":"MODIFIED","object":{"metadata":{"name":"\",\"object\":{}}"},"n":1}}` + "\n",
			want:   []string{`MODIFIED ","object":{}} 1`}, err: "EOF",
		},
		"long":               {stream: `{"type":"ADDED","object":{"metadata":{"name":"` + long + `"},"n":1}}` + "\n", want: []string{"ADDED " + long + " 1"}, err: "EOF"},
		"too long":           {stream: strings.Repeat(" ", longestEvent+1), err: errLongEvent.Error()},
		"cut off":            {stream: `{"type":"ADDED","object":{"metadata":{"name":"a"},"n":1}}`, err: io.ErrUnexpectedEOF.Error()},
		"of an unknown type": {stream: `{"type":"WOW","object":{}}` + "\n", err: `"WOW"`},
		"without a type":     {stream: `{"object":{}}` + "\n", err: `""`},
		"no JSON":            {stream: "<html>\n", err: "reading a watch event"},
		"object of no JSON":  {stream: `{"type":"ADDED","object":{]}` + "\n", err: "reading the object of a watch event"},
		"object is missing":  {stream: `{"type":"ADDED"}` + "\n", err: "reading the object of a watch event"},
		"an error": {
			stream: `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}` + "\n", want: []string{"ERROR Expired 410"}, err: "EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, body := range []io.Reader{strings.NewReader(test.stream), iotest.HalfReader(strings.NewReader(test.stream))} {
				got, err := readAll(&eventReader{body: io.NopCloser(body), lines: newLines(body), decode: DecodeUnstructured})
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !strings.Contains(err.Error(), test.err) {
					t.Errorf("the stream ended with %q, want %q", err, test.err)
				}
			}
		})
	}
}

func readAll(r *eventReader) (events []string, err error) {
	for {
		kind, obj, err := r.Decode()
		if err != nil {
			return events, err
		}
		switch obj := obj.(type) {
		case *unstructured.Unstructured:
			n, isInt := obj.Object["n"].(int64)
			if !isInt {
				return events, errors.New("a number is no int64")
			}
			events = append(events, fmt.Sprintf("%s %s %d", kind, obj.GetName(), n))
		case *metav1.Status:
			events = append(events, fmt.Sprintf("%s %s %d", kind, obj.Reason, obj.Code))
		}
	}
}

// A watch reports an event that it cannot read, and ends when it is stopped.
func TestWatchStream(t *testing.T) {
	stream, feed := io.Pipe()
	w := WatchStream(stream, DecodeUnstructured, nil)
	go func() {
		_, _ = io.WriteString(feed, `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`+"\n"+`<`+"\n")
	}() // it ends with the test
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("got %v", event)
	}
	if event := <-w.ResultChan(); event.Type != watch.Error {
		t.Errorf("an unreadable event is reported as %v", event)
	}
	w.Stop()
	if _, open := <-w.ResultChan(); open {
		t.Error("the watch continues after Stop")
	}
	if _, err := io.WriteString(feed, "x"); err == nil {
		t.Error("the stream was not closed")
	}
}
