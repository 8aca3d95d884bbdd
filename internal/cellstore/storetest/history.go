package storetest

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// Change is a change of an object in a store.
type Change struct {
	// Key is the key of the object, without the prefix of the store.
	Key string
	// Value is the new value; empty if the object was deleted.
	Value []byte
	// Revision is the revision of the change.
	Revision int64
}

// Since returns the changes of a store after a revision, in order.
func Since(t testing.TB, store *cellstore.Store, revision int64) []Change {
	t.Helper()
	until, err := store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var changes []Change
	if until == revision {
		return nil
	}
	// All keys are watched, so that the last revision is seen.
	for response := range store.Client().Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision+1)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			if key, ok := store.Relative(string(event.Kv.Key)); ok && event.Kv.ModRevision <= until {
				changes = append(changes, Change{key, event.Kv.Value, event.Kv.ModRevision})
			}
		}
		if cellstore.Through(response) >= until {
			break
		}
	}
	return changes
}

// Alone fails the test if two of the selected changes share a revision, and returns how many keys have changed.
func Alone(t testing.TB, changes []Change, counts func(Change) bool) int {
	t.Helper()
	at, keys := map[int64]string{}, map[string]bool{}
	for _, change := range changes {
		if !counts(change) {
			continue
		}
		if other := at[change.Revision]; other != "" {
			t.Errorf("%s and %s changed at one revision", other, change.Key)
		}
		at[change.Revision], keys[change.Key] = change.Key, true
	}
	return len(keys)
}

// Of returns whether a change is about an object of a resource, for example "configmaps".
func (c Change) Of(resource string) bool { return strings.HasPrefix(c.Key, resource+"/") }
