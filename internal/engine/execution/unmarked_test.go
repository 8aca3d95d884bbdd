package execution

import (
	"testing"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// An object that is cached while a list is under way may not be in it: it is not gone. Nor does a list end another one that has begun since.
func TestUnmarkedRelist(t *testing.T) {
	q := newTestQueue(t, &fakeInterpreter{})
	work := cell.Key{Namespace: "ns", Name: "w"}
	u := &unmarked{collection: newCollection(q, configMaps), works: map[cell.Key]cell.Key{}, seen: map[cell.Key]*Observed{}}
	read := func(name, version string) {
		obj := observed(t, name, version).Unstructured
		u.works[keyOf(obj)] = work
		u.observe(work, obj, false)
	}
	read("gone", "5")
	read("there", "6")
	first, second := &unmarkedWatch{unmarked: u}, &unmarkedWatch{unmarked: u}
	end := first.Relist()
	first.Set(observed(t, "there", "6"))
	read("new", "7")
	endOther := second.Relist() // the connection was replaced
	end("9")
	if len(u.seen) != 2 || u.seen[keyOf(observed(t, "there", "6").Unstructured)] == nil || u.seen[keyOf(observed(t, "new", "7").Unstructured)] == nil {
		t.Errorf("after the first list there are %v", u.seen)
	}
	second.Set(observed(t, "there", "6"))
	second.Set(observed(t, "new", "7"))
	endOther("9")
	if len(u.seen) != 2 {
		t.Errorf("after the second list there are %v", u.seen)
	}
	read("new", "6") // an older state, read before
	if now := u.seen[keyOf(observed(t, "new", "7").Unstructured)]; now.version != 7 {
		t.Errorf("version 7 was replaced by %d", now.version)
	}
}
