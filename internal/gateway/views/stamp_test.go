package views

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/internal/gateway/inner"
)

// TestWritesHaveShownVersions checks the versions in answers to writes, with caches that have seen them, will see them, or do not.
func TestWritesHaveShownVersions(t *testing.T) {
	one, two := newSharedStore(t, "m1"), newSharedStore(t, "m2")
	for _, s := range []*sharedStore{one, two} {
		s.replica.ready.Store(true)
	}
	v := &Views{shares: []*share{{[]*replica{one.replica}}, {[]*replica{two.replica}}}}
	one.apply(t, "m2", sharedPod("b", "20")) // each share knows of the objects of the other
	one.apply(t, "m1", sharedPod("a", "10"))
	two.apply(t, "m2", sharedPod("b", "20"))
	ofA, ofB := strconv.FormatUint(one.Version(), 10), strconv.FormatUint(two.Version(), 10)

	for _, test := range []struct {
		what, verb, subresource, cluster, pod, version, want, warned string
		inside                                                       bool          // the gateway asks
		within                                                       time.Duration // of the client
	}{
		{what: "a write that is shown", verb: "patch", cluster: "m1", pod: "a", version: "10", want: ofA},
		{what: "a write to a cluster of the second share", verb: "update", cluster: "m2", pod: "b", version: "20", want: ofB},
		{what: "a subresource", verb: "patch", subresource: "status", cluster: "m1", pod: "a", version: "10", want: ofA},
		{what: "a read of a subresource", verb: "get", subresource: "status", cluster: "m1", pod: "a", version: "10", want: ofA},
		{what: "a read that is not shown yet", verb: "get", subresource: "status", cluster: "m1", pod: "a", version: "11", want: "11", within: answerTime + 100*time.Millisecond},
		{what: "a stream", verb: "get", subresource: "log", cluster: "m1", pod: "a", version: "10", want: "10"},
		{what: "a request of the gateway itself", verb: "patch", cluster: "m1", pod: "a", version: "10", want: "10", inside: true},
		{what: "a write to a cluster that is not shown", verb: "patch", cluster: "m3", pod: "a", version: "10", want: "10", warned: "cluster m3"},
		{what: "a write to a template that is not shown", verb: "patch", pod: "a", version: "10", want: "10"},
		{what: "a write that is not shown in time", verb: "patch", cluster: "m1", pod: "a", version: "12", want: "12", warned: "cluster m1", within: answerTime + 100*time.Millisecond},
		{what: "an error", verb: "patch", cluster: "m1", pod: "a", version: "", want: ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
				to := destination{cluster: test.cluster, info: &request.RequestInfo{
					IsResourceRequest: true, Verb: test.verb, APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "pods", Subresource: test.subresource, Name: test.pod,
				}}
				heard := &recorder{}
				ctx := warning.WithWarningRecorder(request.WithUser(t.Context(), &user.DefaultInfo{Name: "someone"}), heard)
				if test.within != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.within)
					defer cancel()
				}
				r := httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", http.NoBody)
				var got, body string
				answer := answerOf(t, mediaType, test.pod, test.version)
				if handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.answered(w, r, to, answer) }); test.inside {
					body = string(inner.Do(handler, r).Body())
				} else {
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					body = w.Body.String()
				}
				if test.version != "" {
					got = versionIn(t, body)
				}
				if got != test.want {
					t.Errorf("in %s: got %q, want %q", mediaType, got, test.want)
				}
				if text := strings.Join(heard.said, ""); strings.Contains(text, test.warned) != (text != "" || test.warned == "") || test.warned != "" && text == "" {
					t.Errorf("in %s: got the warning %q, want %q", mediaType, text, test.warned)
				}
			}
		})
	}
}

// TestWritesWaitUntilShown checks that an answer waits for the cache, and not longer than its client.
func TestWritesWaitUntilShown(t *testing.T) {
	store := newSharedStore(t, "m1")
	store.replica.ready.Store(true)
	v := &Views{shares: []*share{{[]*replica{store.replica}}}}
	store.apply(t, "m1", sharedPod("a", "10"))
	to := destination{cluster: "m1", info: &request.RequestInfo{
		IsResourceRequest: true, Verb: "patch", APIPrefix: "api", APIVersion: "v1", Namespace: "default", Resource: "pods", Name: "a",
	}}
	ask := func(ctx context.Context, version string) string {
		w := httptest.NewRecorder()
		v.answered(w, httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", http.NoBody), to, answerOf(t, runtime.ContentTypeJSON, "a", version))
		return versionIn(t, w.Body.String())
	}
	answered := make(chan string)
	go func() { answered <- ask(t.Context(), "11") }()
	store.apply(t, "m1", sharedPod("a", "11"))
	eleventh := strconv.FormatUint(store.Version(), 10)
	if got := <-answered; got != eleventh {
		t.Errorf("got %s, want %s", got, eleventh)
	}
	left := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if got := ask(ctx, "12"); got != "12" {
		t.Errorf("got %s, want the version of the member", got)
	}
}

type recorder struct{ said []string }

// AddWarning implements warning.Recorder.
func (r *recorder) AddWarning(_, text string) { r.said = append(r.said, text) }

func sharedPod(name, version string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion = "default", name, "u", version
	return pod
}

// answerOf returns a handler that answers with a pod, or with an error if there is no version.
func answerOf(t *testing.T, mediaType, name, version string) http.Handler {
	t.Helper()
	factory := serializer.NewCodecFactory(clientscheme.Scheme)
	encoder, _ := runtime.SerializerInfoForMediaType(factory.SupportedMediaTypes(), mediaType)
	body, err := runtime.Encode(factory.EncoderForVersion(encoder.Serializer, corev1.SchemeGroupVersion), sharedPod(name, version))
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		if version == "" {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = w.Write(body) // to memory
	})
}

func versionIn(t *testing.T, body string) string {
	t.Helper()
	object, _, err := codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
	if err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	return object.(*corev1.Pod).ResourceVersion
}
