package execution

import (
	"context"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// fakeInterpreter returns the same for every object.
type fakeInterpreter struct {
	status   string
	panicsOn string // name of an object
}

func (m *fakeInterpreter) Retain(_ context.Context, desired, _ *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return desired, nil
}

func (m *fakeInterpreter) ReflectStatus(_ context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	if obj.GetName() == m.panicsOn {
		panic("unexpected object")
	}
	return &runtime.RawExtension{Raw: []byte(strconv.Quote(m.status))}, nil
}

func (m *fakeInterpreter) Health(context.Context, *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	return workv1alpha2.ResourceHealthy, nil
}

func (m *fakeInterpreter) PlansRollouts(schema.GroupVersionKind) bool { return false }

func (m *fakeInterpreter) Rollout(context.Context, *unstructured.Unstructured) (*configv1alpha1.WorkloadRollout, error) {
	return nil, nil
}

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func newTestQueue(t *testing.T, m *fakeInterpreter) *memberQueue {
	t.Helper()
	c, err := cell.New(&rest.Config{Host: "https://127.0.0.1:1"}, cell.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return New(c, m, nil, 1, func(cell.Key) {}).queueOf("member1")
}

func observed(t *testing.T, name, version string) *fleet.Bare {
	t.Helper()
	obj, err := fleet.DecodeBare([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ns", "name": "` + name + `", "uid": "` + name +
		`", "resourceVersion": "` + version + `", "annotations": {"` + names.WorkNameAnnotation + `": "` + name + `"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*fleet.Bare)
}

// checkCache compares the status of the cached objects.
func checkCache(t *testing.T, when string, c *collection, synced bool, want map[string]string) {
	t.Helper()
	if len(c.objects) != len(want) || c.synced != synced {
		t.Errorf("%s: %d objects cached, want %d; synced is %t", when, len(c.objects), len(want), c.synced)
	}
	for name, status := range want {
		if now := c.objects[cell.Key{Namespace: "ns", Name: name}]; now == nil || string(now.Status) != strconv.Quote(status) {
			t.Errorf("%s: %s is %+v, want status %s", when, name, now, status)
		}
	}
}

// A list that ends after its watcher was replaced neither removes objects nor keeps them from being interpreted again.
func TestListOfReplacedWatcher(t *testing.T) {
	m := &fakeInterpreter{status: "old"}
	c := newTestQueue(t, m).watch(configMaps)
	ended := 0
	first := c.replaceWatcher(func() { ended++ })
	done := first.Relist()
	first.Set(observed(t, "a", "5"))
	first.Set(observed(t, "b", "6"))
	done("10")
	checkCache(t, "a list", c, true, map[string]string{"a": "old", "b": "old"})

	done = first.Relist()
	m.status = "new"
	c.reinterpret()
	second := c.replaceWatcher(func() { ended++ })
	if ended != 1 {
		t.Errorf("%d watches ended, want 1", ended)
	}
	secondDone := second.Relist()
	done("11")
	first.Unset(observed(t, "b", "12"))
	first.Set(observed(t, "c", "12"))
	checkCache(t, "the late end of the first list", c, false, map[string]string{"a": "old", "b": "old"})

	second.Set(observed(t, "a", "5"))
	second.Set(observed(t, "b", "6"))
	secondDone("13")
	checkCache(t, "the list of the second watcher", c, true, map[string]string{"a": "new", "b": "new"})
}

// An interpreter that changes while a member is unreachable is applied when the member comes back.
func TestInterpreterChangesWhileUnreachable(t *testing.T) {
	m := &fakeInterpreter{status: "old"}
	q := newTestQueue(t, m)
	c := q.watch(configMaps)
	list := func() {
		f := c.replaceWatcher(func() {})
		done := f.Relist()
		f.Set(observed(t, "a", "5"))
		done("10")
	}
	list()
	m.status = "new"
	q.reinterpret(func(gvk schema.GroupVersionKind) bool { return gvk == configMaps })
	list()
	checkCache(t, "the member is back", c, true, map[string]string{"a": "new"})
}

// An object on which the interpreter panics is not cached; the others are.
func TestInterpreterPanic(t *testing.T) {
	c := newTestQueue(t, &fakeInterpreter{status: "fine", panicsOn: "b"}).watch(configMaps)
	f := c.replaceWatcher(func() {})
	done := f.Relist()
	for _, name := range []string{"a", "b", "c"} {
		f.Set(observed(t, name, "5"))
	}
	done("10")
	checkCache(t, "a list", c, true, map[string]string{"a": "fine", "c": "fine"})
}
