package cell

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func object(name, version, label string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version, Labels: map[string]string{"l": label}}}
}

func TestStore(t *testing.T) {
	var events []string
	store := newStore(keep[corev1.ConfigMap], func(cm *corev1.ConfigMap) []string { return []string{cm.Labels["l"]} })
	store.Subscribe(func(key Key, old, now *corev1.ConfigMap) {
		version := func(cm *corev1.ConfigMap) string {
			if cm == nil {
				return "-"
			}
			return cm.ResourceVersion
		}
		events = append(events, fmt.Sprintf("%s %s>%s", key.Name, version(old), version(now)))
	})
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(events, want) {
			t.Errorf("%s: got events %v, want %v", what, events, want)
		}
		events = nil
	}

	done := store.Relist()
	store.Set(object("a", "10", "x"))
	store.Set(object("b", "11", "x"))
	done("12")
	<-store.Synced()
	expect("a list", "a ->10", "b ->11")

	store.Set(object("a", "20", "y"))
	store.Set(object("a", "15", "x"))
	expect("a late event is ignored", "a 10>20")
	if got := store.indexed(0, "x"); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("x is %v", got)
	}

	store.Unset(object("b", "21", "x"))
	store.Set(object("b", "19", "x")) // the late response to a write
	expect("a deleted object stays deleted", "b 11>-")
	store.Set(object("b", "30", "x"))
	expect("unless it is created again", "b ->30")

	done = store.Relist()
	store.Set(object("c", "22", "x"))
	done("25")
	expect("a list removes missing objects, but not newer ones", "c ->22", "a 20>-")
	if store.Get(Key{Namespace: "ns", Name: "b"}) == nil || store.Len() != 2 {
		t.Error("a list that is older than a write undid it")
	}
}

func TestCanonical(t *testing.T) {
	if got := string(Canonical([]byte(`{"b": 1.50, "a": [1, 9007199254740993]}`))); got != `{"a":[1,9007199254740993],"b":1.50}` {
		t.Errorf("canonical form is %s", got)
	}
	if got := string(Canonical([]byte(`{broken`))); got != `{broken` {
		t.Errorf("invalid JSON became %s", got)
	}
}

// A key set has the keys that were added and not removed, whether it is small or large.
func TestKeySet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, want := &keySet{}, map[Key]bool{}
		for _, n := range rapid.SliceOf(rapid.IntRange(-20, 20)).Draw(t, "numbers") {
			key := Key{Name: strconv.Itoa(max(n, -n))}
			if n >= 0 {
				set.add(key)
				want[key] = true
				continue
			}
			delete(want, key)
			if empty := set.remove(key); empty != (len(want) == 0) {
				t.Fatalf("with %d keys left, remove returned %t", len(want), empty)
			}
		}
		got := map[Key]bool{}
		for _, key := range set.all() {
			if got[key] {
				t.Fatalf("%s is in the set twice", key)
			}
			got[key] = true
		}
		if !maps.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
	if none := (*keySet)(nil); none.remove(Key{}) || len(none.all()) != 0 {
		t.Error("a nil set is not empty")
	}
}

// An object that is cached in a version is not condensed again, but counts as seen by a list.
func TestStoreCondensesOnce(t *testing.T) {
	looks := 0
	s := newStore(func(obj runtime.Object, _ *corev1.ConfigMap) *corev1.ConfigMap {
		looks++
		return obj.(*corev1.ConfigMap)
	})
	object := func(version string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: version}}
	}
	s.Set(object("5"))
	done := s.Relist()
	s.Set(object("5"))
	s.Set(object("4"))
	done("9")
	if looks != 1 || s.Len() != 1 {
		t.Errorf("it was condensed %d times, and %d objects are cached", looks, s.Len())
	}
	for version, want := range map[string]bool{"4": true, "5": true, "6": false} {
		if s.knows("ns", "a", version) != want {
			t.Errorf("version %s is cached: %t", version, !want)
		}
	}
	if s.knows("ns", "b", "1") || s.knows("", "a", "1") {
		t.Error("an object is cached that was never set")
	}
}

// Conditions are the same after compacting.
func TestConditions(t *testing.T) {
	want := []metav1.Condition{
		{Type: "Applied", Status: metav1.ConditionTrue, Reason: "Done", Message: "It is.", ObservedGeneration: 3, LastTransitionTime: metav1.Unix(1700000000, 0)},
		{Type: "Degraded", Status: metav1.ConditionFalse, Reason: "No"},
	}
	kept := CompactConditions(want)
	if got := kept.List(); !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := kept.Find("Degraded"); got == nil || got.Reason != "No" || !got.LastTransitionTime.IsZero() {
		t.Errorf("got %v", got)
	}
	if kept.Find("Other") != nil || CompactConditions(nil).List() != nil {
		t.Error("Find returned a condition that does not exist")
	}
}

// A compacted binding is equal to the original, which is not modified.
func TestCompactBinding(t *testing.T) {
	decode := decodeItem(&workv1alpha2.ResourceBindingList{})
	binding := func() *workv1alpha2.ResourceBinding {
		obj, err := decode([]byte(bindingDocument))
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*workv1alpha2.ResourceBinding)
	}
	from := binding()
	kept := condenseBinding(from, nil)
	if !apiequality.Semantic.DeepEqual(kept, binding()) {
		t.Errorf("kept is %v, want %v", kept, binding())
	}
	if !apiequality.Semantic.DeepEqual(from, binding()) {
		t.Error("the original was modified")
	}
}
