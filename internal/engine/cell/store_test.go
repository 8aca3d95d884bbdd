package cell

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func object(name, version, label string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version, Labels: map[string]string{"l": label}}}
}

func TestStore(t *testing.T) {
	var heard []string
	store := newStore(keep[corev1.ConfigMap], func(cm *corev1.ConfigMap) []string { return []string{cm.Labels["l"]} })
	store.Subscribe(func(key Key, old, now *corev1.ConfigMap) {
		version := func(cm *corev1.ConfigMap) string {
			if cm == nil {
				return "-"
			}
			return cm.ResourceVersion
		}
		heard = append(heard, fmt.Sprintf("%s %s>%s", key.Name, version(old), version(now)))
	})
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(heard, want) {
			t.Errorf("%s: heard %v, want %v", what, heard, want)
		}
		heard = nil
	}

	done := store.Relist()
	store.Set(object("a", "10", "x"))
	store.Set(object("b", "11", "x"))
	done("12")
	<-store.Synced()
	expect("a list", "a ->10", "b ->11")

	store.Set(object("a", "20", "y"))
	store.Set(object("a", "15", "x"))
	expect("late news are no news", "a 10>20")
	if got := store.indexed(0, "x"); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("x is %v", got)
	}

	store.Unset(object("b", "21", "x"))
	store.Set(object("b", "19", "x")) // the late answer to a write
	expect("what is gone stays gone", "b 11>-")
	store.Set(object("b", "30", "x"))
	expect("unless it comes back", "b ->30")

	done = store.Relist()
	store.Set(object("c", "22", "x"))
	done("25")
	expect("a list tells what is gone, but nothing about what is newer", "c ->22", "a 20>-")
	if store.Get(Key{Namespace: "ns", Name: "b"}) == nil || store.Len() != 2 {
		t.Error("a list that is older than a write undid it")
	}
}

func TestCanonical(t *testing.T) {
	if got := string(Canonical([]byte(`{"b": 1.50, "a": [1, 9007199254740993]}`))); got != `{"a":[1,9007199254740993],"b":1.50}` {
		t.Errorf("canonical form is %s", got)
	}
	if got := string(Canonical([]byte(`{broken`))); got != `{broken` {
		t.Errorf("what is not JSON became %s", got)
	}
}
