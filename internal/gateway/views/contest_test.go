package views

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/serve"
	memberviews "github.com/cellplane/cellplane/internal/clustergateway/views"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// sharedStore is the cache of a replica that shows the pods of one cluster, with its server.
type sharedStore struct {
	*clustercache.Store
	replica *replica
	handler http.Handler
}

func newSharedStore(t *testing.T, cluster string) *sharedStore {
	t.Helper()
	store, err := clustercache.New(clustercache.Options{Kind: clustercache.Pods()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	handler := serve.New()
	handler.Ready = func() bool { return true }
	changed := make(chan struct{})
	handler.Shown = func() ([]string, bool, <-chan struct{}) { return []string{cluster}, false, changed }
	all := memberviews.Default()
	handler.Add(all[slices.IndexFunc(all, func(v memberviews.View) bool { return v.Resource.Resource == "pods" })], clustercache.Pods(), store)
	upstream := newUpstream(t, cluster, handler)
	return &sharedStore{store, &replica{upstream: upstream}, handler}
}

// newUpstream returns a connection to a server with a handler.
func newUpstream(t *testing.T, name string, handler http.Handler) *fleet.Upstream {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	// Any certificate will do, such as the server's.
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := fleet.NewUpstream(name, fleet.Endpoint{
		Server: server.URL, CA: certificate, Cert: certificate, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return upstream
}

func (s *sharedStore) apply(t *testing.T, cluster string, pod *corev1.Pod) {
	t.Helper()
	if err := s.Feed(cluster).ApplyObject(pod); err != nil {
		t.Fatal(err)
	}
}

// contestedEvent returns the last event of the share, as it appears in a watch that is merged from both.
func (s *sharedStore) contestedEvent(t *testing.T, from uint64, accept string, stores ...*sharedStore) ([]byte, splice.Encoding) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=%d", from), http.NoBody)
	r.Header.Set("Accept", accept)
	r.Header.Set(memberviews.ContestedHeader, "true")
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, r)
	encoding := encodingOf(answer.Header())
	var last *splice.Event
	events := splice.NewEventReader(answer.Body, encoding, 0)
	for {
		event, err := events.Next()
		if err != nil {
			break
		}
		last = event
	}
	if last == nil {
		t.Fatal("the share has sent no event")
	}
	at := position.Position{Epoch: 1}
	for _, store := range stores {
		at.Versions = append(at.Versions, store.Version())
	}
	version, err := at.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return last.Append(nil, version), encoding
}

// TestContestedNamesAreLookedUp checks the events that a client gets while shares disagree about a name.
func TestContestedNamesAreLookedUp(t *testing.T) {
	pod := func(uid types.UID, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: uid, ResourceVersion: "1", Labels: labels}}
	}
	for name, test := range map[string]struct {
		query string
		forms []string // besides JSON
		do    func(t *testing.T, first, second *sharedStore)
		want  splice.EventType
		uid   string
	}{
		"the other share shows it": {forms: []string{splice.ProtobufContentType, "application/json;as=Table;g=meta.k8s.io;v=v1"}, do: func(_ *testing.T, first, second *sharedStore) {
			first.Feed("m1").DeleteObject("default", "web-0")
			second.Feed("m1").DeleteObject("default", "web-0")
		}, want: splice.Added, uid: "b"},
		"the other share is behind": {do: func(_ *testing.T, first, _ *sharedStore) {
			first.Feed("m1").DeleteObject("default", "web-0")
		}, want: splice.Deleted},
		"it is recreated": {do: func(t *testing.T, first, _ *sharedStore) {
			first.Feed("m1").DeleteObject("default", "web-0")
			first.apply(t, "m1", pod("c", nil))
		}, want: splice.Added, uid: "c"},
		"what is shown is not selected": {query: "?labelSelector=app%3Dx", do: func(_ *testing.T, first, second *sharedStore) {
			first.Feed("m1").DeleteObject("default", "web-0")
			second.Feed("m1").DeleteObject("default", "web-0")
		}, want: splice.Deleted},
		"what is shown is selected by a field": {query: "?fieldSelector=spec.nodeName%3D", do: func(_ *testing.T, first, second *sharedStore) {
			first.Feed("m1").DeleteObject("default", "web-0")
			second.Feed("m1").DeleteObject("default", "web-0")
		}, want: splice.Added, uid: "b"},
	} {
		for _, accept := range append(test.forms, "application/json") {
			t.Run(name+" as "+accept, func(t *testing.T) {
				t.Parallel() // each waits for a watch
				first, second, other := newSharedStore(t, "m1"), newSharedStore(t, "m2"), newSharedStore(t, "m1")
				for _, store := range []*sharedStore{first, second} {
					store.apply(t, "m1", pod("a", nil))
					store.apply(t, "m2", pod("b", nil))
				}
				from := first.Version()
				test.do(t, first, second)
				// other does not have the version, so its answer must not be used.
				c := &contest{
					shares: []*share{{replicas: []*replica{other.replica, first.replica}}, {replicas: []*replica{second.replica}}},
					r:      httptest.NewRequest(http.MethodGet, "/api/v1/pods"+test.query, http.NoBody),
					info:   &request.RequestInfo{APIPrefix: "api", APIVersion: "v1", Resource: "pods"},
				}
				c.r.Header.Set("Accept", accept)
				frame, encoding := first.contestedEvent(t, from, accept, first, second)
				sent, err := c.resolve(frame, encoding)
				if err != nil {
					t.Fatal(err)
				}
				event, err := splice.ParseEvent(unframed(sent, encoding), encoding)
				if err != nil {
					t.Fatal(err)
				}
				if event.Type != test.want || test.uid != "" && event.Object.UID != test.uid || len(event.Object.ResourceVersion) < 30 {
					t.Errorf("the client gets %s of %s at %s", event.Type, event.Object.UID, event.Object.ResourceVersion)
				}
				if again, err := c.resolve(frame, encoding); err != nil || len(again) > 0 {
					t.Errorf("the client gets the same state again: %s, %v", again, err)
				}
				c.shares[0].replicas = c.shares[0].replicas[:1]
				if _, err := c.resolve(frame, encoding); err == nil || !strings.Contains(err.Error(), "default/web-0") {
					t.Errorf("without the replica that has the version: %v, want an error that names the object", err)
				}
			})
		}
	}
}

// TestContestSendsEachStateOnce passes the events of a contested name as they come in a watch that is merged from shares.
func TestContestSendsEachStateOnce(t *testing.T) {
	const deleted, added, modified = splice.Deleted, splice.Added, splice.Modified
	type step struct {
		of      splice.EventType
		uid     string
		version int
		stale   bool
		sent    bool
	}
	for name, steps := range map[string][]step{
		"equal answers":                           {{added, "a", 5, false, true}, {added, "a", 5, false, false}, {modified, "a", 6, false, true}, {added, "a", 6, false, false}},
		"an event older than an answer":           {{added, "a", 5, false, true}, {modified, "a", 4, false, false}, {modified, "a", 6, false, true}},
		"an object that takes another's place":    {{added, "a", 5, false, true}, {added, "b", 2, false, true}, {added, "a", 5, false, true}},
		"an object that is deleted and recreated": {{added, "a", 5, false, true}, {deleted, "a", 5, false, true}, {deleted, "a", 5, false, false}, {added, "a", 5, false, true}},
		"an object of an unreachable member":      {{added, "a", 5, false, true}, {modified, "a", 5, true, true}, {modified, "a", 5, true, false}, {modified, "a", 5, false, true}},
		"the deletion of an object never sent":    {{deleted, "a", 5, false, true}, {deleted, "b", 5, false, false}},
		"versions that are not numbers are new":   {{added, "a", -1, false, true}, {added, "a", 5, false, true}, {added, "a", -1, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &contest{}
			for i, s := range steps {
				event := &splice.Event{Type: s.of}
				now := stateOf(event)
				if s.of != deleted {
					now = sentState{uid: s.uid, version: fmt.Sprint(s.version)}
					if s.stale {
						now.staleSince = "1"
					}
				}
				if news := c.note("default/web-0", now); news != s.sent {
					t.Errorf("step %d is new: %t, want %t", i, news, s.sent)
				}
			}
		})
	}
	c := &contest{}
	for i := range 3 * maxSent {
		c.note(fmt.Sprint(i), sentState{uid: "a"})
	}
	if len(c.sent) != maxSent {
		t.Errorf("%d names are remembered, want %d", len(c.sent), maxSent)
	}
}
