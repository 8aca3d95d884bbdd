package ingest

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// handlerTransport serves requests by a handler in the same goroutine, so that synctest controls all time.
type handlerTransport struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// shortWindow is a member whose watch window is shorter than the time it needs to send its objects: each watch expires at once.
type shortWindow struct {
	t        *testing.T
	streams  bool // it can send the initial state in a watch
	listTime time.Duration

	lists      int
	last       time.Time
	longestGap time.Duration
}

// ServeHTTP implements http.Handler.
func (m *shortWindow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	initial := query.Get("sendInitialEvents") == "true"
	switch {
	case initial && !m.streams:
		m.status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case initial:
		m.list(r)
		_, _ = w.Write(frameOf(m.t, "BOOKMARK", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}))
		_, _ = w.Write(frameOf(m.t, "ERROR", &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}))
	case query.Has("watch"):
		m.status(w, http.StatusGone, metav1.StatusReasonExpired)
	default:
		m.list(r)
		_, _ = w.Write(inEnvelope(m.t, "v1", "List", &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}))
	}
}

func (m *shortWindow) list(r *http.Request) {
	m.longestGap = max(m.longestGap, time.Since(m.last))
	sleep(r.Context(), m.listTime)
	m.lists++
	m.last = time.Now()
}

func (m *shortWindow) status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_, _ = w.Write(inEnvelope(m.t, "v1", "Status", &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason}))
}

type marshaler interface{ Marshal() ([]byte, error) }

func inEnvelope(t *testing.T, apiVersion, kind string, object marshaler) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), encoded...)
}

func frameOf(t *testing.T, kind string, object marshaler) []byte {
	t.Helper()
	event, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: inEnvelope(t, "v1", "Any", object)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// TestStreamBacksOffWhenWatchesExpire checks that a member with too short a watch window is relisted with back-off.
func TestStreamBacksOffWhenWatchesExpire(t *testing.T) {
	for name, test := range map[string]struct {
		streams  bool
		listTime time.Duration
	}{
		"lists":                              {false, 0},
		"lists slower than any back-off":     {false, 2 * steadyWatch},
		"streaming":                          {true, 0},
		"streaming slower than any back-off": {true, 2 * steadyWatch},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const period = time.Hour
				ctx, cancel := context.WithTimeout(t.Context(), period)
				defer cancel()
				member := &shortWindow{t: t, streams: test.streams, listTime: test.listTime, last: time.Now()}
				to, reported := &recorder{}, 0
				s := &stream{
					client: &http.Client{Transport: handlerTransport{member}}, base: &url.URL{Scheme: "http", Host: "member"}, path: "/api/v1/pods",
					feed: &feed{to: to}, await: func(context.Context) {}, failed: func(err error) {
						if reported++; !isExpired(err) {
							t.Errorf("reported failure: %v", err)
						}
					},
				}
				s.run(ctx)
				// The pauses grow to longestRelistPause within about ten lists.
				if atMost := int(period/(longestRelistPause+test.listTime)) + 10; member.lists > atMost {
					t.Errorf("listed %d times in %v, want at most %d", member.lists, period, atMost)
				}
				if member.lists < 2 || member.longestGap > 2*longestRelistPause {
					t.Errorf("listed %d times with gaps of up to %v", member.lists, member.longestGap)
				}
				if reported == 0 {
					t.Error("repeated expiry was never reported")
				}
			})
		})
	}
}
