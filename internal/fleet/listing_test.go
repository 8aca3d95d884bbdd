package fleet

import (
	"maps"
	"slices"
	"testing"
)

// TestListing checks what is gone after a list: what was known and not seen since the last beginning.
func TestListing(t *testing.T) {
	known := map[string]bool{"a": true, "b": true, "c": true}
	var l Listing[string]
	check := func(what string, want ...string) {
		t.Helper()
		if got := slices.Sorted(slices.Values(l.End(maps.Keys(known)))); !slices.Equal(got, want) {
			t.Errorf("%s: %v are gone, want %v", what, got, want)
		}
	}
	l.Saw("a") // an event of a watch
	l.Begin()
	l.Saw("b")
	l.Saw("new")
	check("a list", "a", "c")
	l.Begin()
	l.Saw("a")
	l.Begin()
	l.Saw("b")
	l.Saw("c")
	check("a list that began anew", "a")
	l.Begin()
	check("an empty list", "a", "b", "c")
}
