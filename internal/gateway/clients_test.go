package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/position"
)

// testExpectations checks the rows of EXPECTATIONS.md that no other test covers.
func testExpectations(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "expectations")
	fill(t, w.client, namespace, 6)
	t.Run("Expired", func(t *testing.T) { testExpiredWithoutRetry(t, w, namespace) })
	t.Run("NotReached", func(t *testing.T) { testNotReached(t, w, namespace) })
	t.Run("OwnWrites", func(t *testing.T) { testOwnWrites(t, w, namespace) })
	t.Run("PodFields", func(t *testing.T) { testPodFields(t, w, namespace) })
	t.Run("EventFields", func(t *testing.T) { testEventFields(t, w, namespace) })
}

// testExpiredWithoutRetry lists at a foreign version: with a Retry-After, reflectors would retry with the same version.
func testExpiredWithoutRetry(t *testing.T, w *world, namespace string) {
	response := w.do(t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", url.Values{"resourceVersion": {"1" + strings.Repeat("7", 29)}}, nil, nil)
	if response.StatusCode != http.StatusGone || response.Header.Get("Retry-After") != "" {
		t.Errorf("got %s with Retry-After %q, want 410 without", response.Status, response.Header.Get("Retry-After"))
	}
}

// testNotReached lists at a future version: an API server waits for it and then times out.
func testNotReached(t *testing.T, w *world, namespace string) {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := position.Parse(list.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	for i := range at.Versions {
		at.Versions[i] += 1_000_000
	}
	future, err := at.Encode()
	if err != nil {
		t.Fatal(err)
	}
	response := w.do(t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps", url.Values{"resourceVersion": {future}, "resourceVersionMatch": {"NotOlderThan"}}, nil, nil)
	if response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("a list at a future version: %s, want 504", response.Status)
	}
}

// testOwnWrites checks that the version in the answer to a write is that of its watch event: controllers wait until their caches have
// reached the version that they wrote.
func testOwnWrites(t *testing.T, w *world, namespace string) {
	maps := w.client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	for i := range 6 {
		written, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("own-%d", i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watched, ok := next(t, stream).Object.(*corev1.ConfigMap)
		if !ok || watched.Name != written.Name {
			t.Fatalf("got an event of %v, want %s", watched, written.Name)
		}
		if written.ResourceVersion != watched.ResourceVersion {
			t.Errorf("the write has version %s, its event %s", written.ResourceVersion, watched.ResourceVersion)
		}
	}
}

// testPodFields selects pods by every field that API servers know.
func testPodFields(t *testing.T, w *world, namespace string) {
	pods := w.client.CoreV1().Pods(namespace)
	for i := range 6 {
		if _, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
			Spec: corev1.PodSpec{
				NodeName: fmt.Sprintf("node-%d", i%2), SchedulerName: fmt.Sprintf("scheduler-%d", i%2), RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]int{
		"metadata.name=pod-3":             1,
		"metadata.namespace=" + namespace: 6,
		"spec.nodeName=node-1":            3,
		"spec.nodeName!=node-1":           3,
		"spec.restartPolicy=Never":        6,
		"spec.schedulerName=scheduler-0":  3,
		"spec.serviceAccountName=other":   0,
		"spec.hostNetwork=false":          6,
		"status.phase=Pending":            6,
		"status.podIP=10.0.0.1":           0,
		"status.nominatedNodeName=":       6,
	} {
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("%s: %d pods, want %d: %v", selector, len(list.Items), want, err)
		}
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nothing=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v, want 400", err)
	}
}

// testEventFields selects events by every field that API servers know, in both groups that serve them.
func testEventFields(t *testing.T, w *world, namespace string) {
	for i := range 6 {
		if _, err := w.client.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("event-%d", i)},
			InvolvedObject: corev1.ObjectReference{
				Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("pod-%d", i%3), UID: "uid", APIVersion: "v1", ResourceVersion: "5", FieldPath: "spec",
			},
			Reason: "Tested", Type: "Normal", Source: corev1.EventSource{Component: "tests"}, ReportingController: "tests",
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]int{
		"involvedObject.kind=Pod":               6,
		"involvedObject.namespace=" + namespace: 6,
		"involvedObject.name=pod-1":             2,
		"involvedObject.uid=uid":                6,
		"involvedObject.apiVersion=v1":          6,
		"involvedObject.resourceVersion=5":      6,
		"involvedObject.fieldPath=spec":         6,
		"reason=Tested":                         6,
		"reportingComponent=tests":              6,
		"source=tests":                          6,
		"type=Warning":                          0,
	} {
		list, err := w.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != want {
			t.Errorf("%s: %d events, want %d: %v", selector, len(list.Items), want, err)
		}
	}
	newer, err := w.client.EventsV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Tested"})
	if err != nil || len(newer.Items) != 6 {
		t.Errorf("events.k8s.io: %d events: %v", len(newer.Items), err)
	}
	if names := []string{newer.Items[0].Name, newer.Items[5].Name}; !slices.Equal(names, []string{"event-0", "event-5"}) {
		t.Errorf("events.k8s.io: from %s to %s", names[0], names[1])
	}
}
