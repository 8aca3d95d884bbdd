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

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// meaning says the same of every object.
type meaning struct {
	status  string
	upsetBy string // the object that it cannot stand
}

func (m *meaning) Retain(_ context.Context, desired, _ *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return desired, nil
}

func (m *meaning) ReflectStatus(_ context.Context, obj *unstructured.Unstructured) (*runtime.RawExtension, error) {
	if obj.GetName() == m.upsetBy {
		panic("never seen such a thing")
	}
	return &runtime.RawExtension{Raw: []byte(strconv.Quote(m.status))}, nil
}

func (m *meaning) Health(context.Context, *unstructured.Unstructured) (workv1alpha2.ResourceHealth, error) {
	return workv1alpha2.ResourceHealthy, nil
}

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func newTestLane(t *testing.T, m *meaning) *lane {
	t.Helper()
	c, err := cell.New(&rest.Config{Host: "https://127.0.0.1:1"}, cell.Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return New(c, m, nil, 1, func(cell.Key) {}).lane("member1")
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

// knows tells what the status of the known objects means.
func knows(t *testing.T, when string, c *collection, synced bool, want map[string]string) {
	t.Helper()
	if len(c.objects) != len(want) || c.synced != synced {
		t.Errorf("%s: %d objects are known, synced: %t", when, len(c.objects), c.synced)
	}
	for name, status := range want {
		if now := c.objects[cell.Key{Namespace: "ns", Name: name}]; now == nil || string(now.Status) != strconv.Quote(status) {
			t.Errorf("%s: %s is %+v", when, name, now)
		}
	}
}

// A list that ends late, after another follower has taken over, neither makes objects disappear nor keeps them from being
// looked at again.
func TestLateList(t *testing.T) {
	m := &meaning{status: "old"}
	c := newTestLane(t, m).follow(configMaps)
	ended := 0
	first := c.replaceFollower(func() { ended++ })
	done := first.Relist()
	first.Set(observed(t, "a", "5"))
	first.Set(observed(t, "b", "6"))
	done("10")
	knows(t, "a list", c, true, map[string]string{"a": "old", "b": "old"})

	done = first.Relist()
	m.status = "new"
	c.forgetMeaning()
	second := c.replaceFollower(func() { ended++ })
	if ended != 1 {
		t.Errorf("%d followers were ended", ended)
	}
	secondDone := second.Relist()
	done("11")
	first.Unset(observed(t, "b", "12"))
	first.Set(observed(t, "c", "12"))
	knows(t, "the late end of a list", c, false, map[string]string{"a": "old", "b": "old"})

	second.Set(observed(t, "a", "5"))
	second.Set(observed(t, "b", "6"))
	secondDone("13")
	knows(t, "the list of the second", c, true, map[string]string{"a": "new", "b": "new"})
}

// What objects mean is found out again when a member comes back, if it has changed while there was no connection to it.
func TestMeaningChangesWhileAway(t *testing.T) {
	m := &meaning{status: "old"}
	l := newTestLane(t, m)
	c := l.follow(configMaps)
	list := func() {
		f := c.replaceFollower(func() {})
		done := f.Relist()
		f.Set(observed(t, "a", "5"))
		done("10")
	}
	list()
	m.status = "new"
	l.reinterpret(func(gvk schema.GroupVersionKind) bool { return gvk == configMaps })
	list()
	knows(t, "the member is back", c, true, map[string]string{"a": "new"})
}

// An object that upsets the interpreter is not known; the others are.
func TestUpsettingObject(t *testing.T) {
	c := newTestLane(t, &meaning{status: "fine", upsetBy: "b"}).follow(configMaps)
	f := c.replaceFollower(func() {})
	done := f.Relist()
	for _, name := range []string{"a", "b", "c"} {
		f.Set(observed(t, name, "5"))
	}
	done("10")
	knows(t, "a list", c, true, map[string]string{"a": "fine", "c": "fine"})
}
