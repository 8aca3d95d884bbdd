package position

import (
	"cmp"
	"errors"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func someVersion(t *rapid.T, label string) Version {
	return Version{
		Change:   rapid.Uint16Range(1, MaxChange).Draw(t, label+": change"),
		Cell:     rapid.Uint16Range(0, MaxNumber).Draw(t, label+": cell"),
		Revision: rapid.Uint64Range(1, MaxRevision).Draw(t, label+": revision"),
	}
}

// TestVersionRoundTrip also checks that versions fit into 63 bits, and that clients order them as change, cell and revision are ordered.
func TestVersionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := someVersion(t, "v"), someVersion(t, "w")
		got, err := ParseVersion(v.String())
		if got != v || err != nil {
			t.Fatalf("%v becomes %q, and that %v, %v", v, v.String(), got, err)
		}
		a, errA := strconv.ParseInt(v.String(), 10, 64)
		b, errB := strconv.ParseInt(w.String(), 10, 64)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		want := cmp.Or(cmp.Compare(v.Change, w.Change), cmp.Compare(v.Cell, w.Cell), cmp.Compare(v.Revision, w.Revision))
		if cmp.Compare(a, b) != want {
			t.Fatalf("%d and %d are not ordered as %v and %v", a, b, v, w)
		}
	})
}

func TestVersionLimits(t *testing.T) {
	if got := (Version{MaxChange, MaxNumber, MaxRevision}).String(); got != "9221999999999999999" {
		t.Errorf("the highest version is %q", got)
	}
	for _, v := range []Version{{}, {0, 1, 1}, {MaxChange + 1, 1, 1}, {1, MaxNumber + 1, 1}, {1, 1, 0}, {1, 1, MaxRevision + 1}} {
		if _, err := v.Append(nil); err == nil || v.String() != "" {
			t.Errorf("%v was encoded", v)
		}
	}
	for _, s := range []string{"", "0", "17", "999999999999999", "1000000000000000", "1000000000000001", "9222000000000000001", "18446744073709551615", "100000000010000000000000000017"} {
		_, err := ParseVersion(s)
		valid := s == "1000000000000001"
		if (err == nil) != valid || err != nil && !errors.Is(err, ErrForeign) {
			t.Errorf("ParseVersion(%q): %v", s, err)
		}
	}
}
