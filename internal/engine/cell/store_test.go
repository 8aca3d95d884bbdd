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
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
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

// A list of several cells has a position that is not comparable with the versions of objects.
func TestStoreOfSeveralCells(t *testing.T) {
	const position = "100000000070000000000000000123" + "0000000000000000456"
	store := newStore(keep[corev1.ConfigMap])
	done := store.Relist()
	store.Set(object("kept", "10", ""))
	store.Set(object("gone", "11", ""))
	store.Set(object("written", "12", ""))
	done(position)
	done = store.Relist()
	store.Set(object("kept", "10", ""))
	store.Set(object("written", "13", "")) // the response to a write, during the list
	done(position)
	if store.Get(Key{Namespace: "ns", Name: "gone"}) != nil || store.Len() != 2 {
		t.Errorf("after the list there are %v", store.Keys())
	}
	store.Set(object("gone", "11", ""))
	if store.Len() != 2 {
		t.Error("a late event restored an object that is gone")
	}
	store.Set(object("gone", "14", ""))
	if store.Len() != 3 {
		t.Error("an object that is created again is not cached")
	}
}

// An agent sees the Works of all cells: that of a template that has moved has a lower version, or a higher one.
func TestWorksThatMove(t *testing.T) {
	state := &Cell{Cluster: "m1", Manifests: newManifests()}
	state.Clusters = newStore(keep[clusterv1alpha1.Cluster])
	state.Works = newWorks(state)
	work := func(uid, version string, created int64, frozen bool) *workv1alpha1.Work {
		w := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: "karmada-es-m1", Name: "w", UID: types.UID(uid), ResourceVersion: version, CreationTimestamp: metav1.Unix(created, 0)}}
		if frozen {
			w.Labels = map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated}
		}
		return w
	}
	cached := func(what, uid, version string) {
		t.Helper()
		now := state.Works.Get(Key{Namespace: "karmada-es-m1", Name: "w"})
		if now == nil && uid == "" || now != nil && now.UID == types.UID(uid) && now.Version == version {
			return
		}
		t.Errorf("%s: %+v is cached, want %s in version %s", what, now, uid, version)
	}
	state.Works.Set(work("old", "2010", 100, false))
	state.Works.Set(work("new", "1020", 200, false))
	cached("the new one has a lower version", "new", "1020")
	state.Works.Set(work("old", "2011", 100, false))
	cached("a late event of the old one", "new", "1020")
	state.Works.Set(work("old", "2012", 100, true))
	cached("the old one is frozen", "new", "1020")
	state.Works.Unset(work("old", "2013", 100, true))
	cached("the old one is removed", "new", "1020")
	state.Works.Set(work("new", "1019", 200, false))
	cached("an earlier version of the same", "new", "1020")
	state.Works.Set(work("new", "1030", 200, true))
	state.Works.Set(work("back", "2040", 150, false)) // the clock of its cell is slow
	cached("the next one, after the former was frozen", "back", "2040")
	state.Works.Unset(work("back", "2041", 150, false))
	cached("it is deleted", "", "")
	state.Works.Set(work("back", "2040", 150, false))
	cached("a late event", "", "")
	state.Works.Set(work("again", "1050", 300, false))
	cached("another one is created", "again", "1050")
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
