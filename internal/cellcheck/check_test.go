package cellcheck

import (
	"testing"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// TestLateness checks copies that are always a little behind their object, and copies that are stuck.
func TestLateness(t *testing.T) {
	version := func(value string) cellstore.KV {
		if value == "" {
			return cellstore.KV{}
		}
		return cellstore.KV{Value: []byte(value), ModRevision: 1}
	}
	for _, test := range []struct {
		name string
		// passes are the object and its copy in each pass.
		passes [][2]string
		want   bool
	}{
		{"equal at once", [][2]string{{"1", "1"}}, true},
		{"behind", [][2]string{{"2", "1"}}, false},
		{"always one behind", [][2]string{{"2", "1"}, {"3", "2"}}, true},
		{"has caught up once", [][2]string{{"2", "1"}, {"3", "2"}, {"4", "3"}, {"9", "5"}}, true},
		{"stuck", [][2]string{{"2", "1"}, {"3", "1"}, {"4", "1"}}, false},
		{"never made", [][2]string{{"1", ""}, {"2", ""}}, false},
		{"made late", [][2]string{{"1", ""}, {"2", "1"}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			behind := lateness{}
			finding, other := Finding{Problem: OldCopy, Key: "a"}, Finding{Problem: OldCopy, Key: "b"}
			behind.caughtUp(other, version("1"), version("1")) // other objects do not matter
			got := false
			for _, pass := range test.passes {
				got = behind.caughtUp(finding, version(pass[0]), version(pass[1]))
			}
			if got != test.want {
				t.Errorf("caught up: %v, want %v", got, test.want)
			}
		})
	}
}
