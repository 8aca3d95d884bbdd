package gateway_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// hubWatch is a watch of events in cells and on the hub that nobody resumes, while cells join and leave.
type hubWatch struct {
	t            *testing.T
	namespace    string
	hub, through typedcorev1.EventInterface
	stream       watch.Interface
	versions     []string // of the events that were shown
}

// startHubWatch watches the events through the current gateway until the test ends.
func (f *movingFixture) startHubWatch(w *world) *hubWatch {
	f.t.Helper()
	h := &hubWatch{t: f.t, namespace: f.namespace, hub: clientFor(f.t, adminOf(f.t, w.Hub)).CoreV1().Events(f.namespace), through: f.clients[currentGateway].CoreV1().Events(f.namespace)}
	h.stream = h.watch("")
	return h
}

// watch watches from a version, or from that of a list.
func (h *hubWatch) watch(version string) watch.Interface {
	h.t.Helper()
	if version == "" {
		list, err := h.through.List(h.t.Context(), metav1.ListOptions{})
		must(h.t, err)
		version = list.ResourceVersion
	}
	stream, err := h.through.Watch(h.t.Context(), metav1.ListOptions{ResourceVersion: version})
	must(h.t, err)
	h.t.Cleanup(stream.Stop)
	return stream
}

// show creates an event on the hub. The watch has to show it, and so has one that begins at the event before it.
func (h *hubWatch) show(name string) {
	h.t.Helper()
	_, err := h.hub.Create(h.t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name + ".17a"}, InvolvedObject: corev1.ObjectReference{Kind: "Role", Namespace: h.namespace, Name: "reader"}}, metav1.CreateOptions{})
	must(h.t, err)
	event := h.next(h.stream)
	if event.Name != name+".17a" {
		h.t.Errorf("the watch shows %s, want %s", event.Name, name)
	}
	if n := len(h.versions); n > 0 {
		for again := h.watch(h.versions[n-1]); ; {
			if seen := h.next(again); seen.Name == event.Name {
				break
			}
		}
	}
	h.versions = append(h.versions, event.ResourceVersion)
}

func (h *hubWatch) next(stream watch.Interface) *corev1.Event {
	h.t.Helper()
	event := next(h.t, stream)
	object, ok := event.Object.(*corev1.Event)
	if !ok {
		h.t.Fatalf("got %v", event)
	}
	return object
}
