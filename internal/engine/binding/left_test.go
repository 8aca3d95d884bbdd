package binding

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// What is known about a cluster counts for one stay of the binding in the cell, and until the cluster gets a Work again.
func TestLeft(t *testing.T) {
	at := func(from string) *workv1alpha2.ResourceBinding {
		return &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", Annotations: map[string]string{names.MovedFromAnnotation: from}}}
	}
	binding, key := at(""), cell.Key{Namespace: "shop", Name: "web"}
	var l left
	check := func(what string, binding *workv1alpha2.ResourceBinding, cluster string, want bool) {
		t.Helper()
		if got := l.isGone(binding, cluster); got != want {
			t.Errorf("%s: the copy in %s is known to be gone: %t, want %t", what, cluster, got, want)
		}
	}
	check("nothing is known", binding, "a", false)
	if !l.note(binding, "a", true) || l.note(binding, "a", true) {
		t.Error("only the first time is news")
	}
	l.note(binding, "b", false)
	check("it was asked", binding, "a", true)
	check("it did not answer", binding, "b", false)
	if asked := l.asked("b"); !slices.Equal(asked, []cell.Key{key}) || len(l.asked("a")) != 0 {
		t.Errorf("b was asked for %v, a for %v", asked, l.asked("a"))
	}
	l.note(binding, "b", true)
	check("it has answered", binding, "b", true)
	if asked := l.asked("b"); len(asked) != 0 {
		t.Errorf("b is still asked for %v", asked)
	}
	l.returned(key, "b")
	check("it got a Work again", binding, "b", false)
	check("of the other nothing has changed", binding, "a", true)
	check("the binding has moved, and come back", at("cell-b/7"), "a", false)
	l.note(at("cell-b/7"), "c", true)
	check("what was known before counts no more", binding, "a", false)
	binding = at("cell-b/7")
	binding.Status.AggregatedStatus = []workv1alpha2.AggregatedStatusItem{{ClusterName: "c"}}
	l.note(binding, "d", true)
	l.trim(binding)
	check("the status names it", binding, "c", true)
	check("nothing names it", binding, "d", false)
	l.forget(key)
	check("the binding is gone", at("cell-b/7"), "c", false)
}
