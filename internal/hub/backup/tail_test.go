package backup

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

// testTail waits for the copies of a cell that works, that has failed, and that has failed before this hub manager
// began, with and without the history of its store.
func testTail(t *testing.T, stores map[string]*cellstore.Store, term cellstore.Term) {
	ctx := t.Context()
	const failed, target = "cell-a", "cell-b"
	open := func(_ context.Context, cell string) (*cellstore.Store, error) { return stores[cell], nil }
	normal := compiled(t, 11, failed, target)
	lost := compiledAs(t, 12, slots.Cell{Name: failed, State: slots.Failed}, slots.Cell{Name: target})
	name := func(i int) string {
		for ; ; i += 1000 {
			if n := fmt.Sprintf("tail-%d", i); normal.Name(normal.Route(slots.Of("default", n)).New) == failed {
				return n
			}
		}
	}
	store := stores[failed]
	put := func(i int, text string) int64 {
		t.Helper()
		value := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"text":%q}}`, name(i), text)
		revision, err := store.Txn(ctx, term, nil, cellstore.Put(store.Key("configmaps/default/"+name(i)), value))
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	remove := func(i int) int64 {
		t.Helper()
		revision, err := store.Txn(ctx, term, nil, cellstore.Delete(store.Key("configmaps/default/"+name(i))))
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	// want checks the copy; empty means that there is none.
	want := func(i int, text string) {
		t.Helper()
		kv, _, err := stores[target].Get(ctx, Prefix(failed)+"configmaps/default/"+name(i))
		if err != nil {
			t.Fatal(err)
		}
		if (text == "") != (kv.ModRevision == 0) || !bytes.Contains(kv.Value, []byte(text)) {
			t.Errorf("the copy of %s is %q, want %q", name(i), kv.Value, text)
		}
	}
	wait := func(c *Controller, revision int64) {
		t.Helper()
		if err := c.WaitCopied(ctx, failed, revision); err != nil {
			t.Fatal(err)
		}
	}

	c := &Controller{Term: term, Open: open}
	started(t, c)
	c.Set(normal)
	put(1, "one")
	put(2, "one")
	wait(c, put(3, "one"))
	want(1, "one")
	want(3, "one")
	for i := range 5 { // not each after the write interval
		wait(c, put(1, fmt.Sprintf("again-%d", i)))
		want(1, fmt.Sprintf("again-%d", i))
	}
	// A revision of something that is not copied.
	revision, err := store.Txn(ctx, term, nil, cellstore.Put("/elsewhere", nil))
	if err != nil {
		t.Fatal(err)
	}
	wait(c, revision)

	// The cell fails. What is stored later is copied when somebody waits for it.
	c.Set(lost)
	put(4, "late")
	remove(2)
	wait(c, put(1, "late"))
	want(1, "late")
	want(2, "")
	want(4, "late")
	if _, s := c.sourceOf(failed); s != nil {
		t.Error("the failed cell is still backed up")
	}

	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("after a restart, compacted %t", compacted), func(t *testing.T) {
			put(2, "back")
			remove(4)
			revision := put(1, fmt.Sprintf("compacted-%t", compacted))
			if compacted {
				if _, err := store.Client().Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
					t.Fatal(err)
				}
			}
			c := &Controller{Term: term, Open: open}
			started(t, c)
			c.Set(lost)
			wait(c, revision)
			want(1, fmt.Sprintf("compacted-%t", compacted))
			want(2, "back")
			want(3, "one")
			want(4, "")
			remove(2)
			put(4, "again")
		})
	}

	// A backup cell that cannot be reached, and a cell that is unknown.
	c = &Controller{Term: term, Open: func(ctx context.Context, cell string) (*cellstore.Store, error) {
		if cell == target {
			return nil, errUnreachable
		}
		return open(ctx, cell)
	}}
	if err := c.WaitCopied(ctx, failed, 1); err == nil {
		t.Error("waited without a topology")
	}
	c.Set(lost)
	if err := c.WaitCopied(ctx, failed, 1); err == nil {
		t.Error("waited for a backup cell that cannot be reached")
	}
	if err := c.WaitCopied(ctx, "cell-x", 1); err == nil {
		t.Error("waited for a cell that does not exist")
	}
}

func compiledAs(t *testing.T, epoch int64, cells ...slots.Cell) *slots.Map {
	t.Helper()
	for i := range cells {
		cells[i].Weight = 1
	}
	m, err := slots.Compile(epoch, cells)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLastPlacements checks that the copies of a failed cell stay where they were, whatever the hub manager knows.
func TestLastPlacements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := someTopology(t)
		before, err := slots.Compile(1, cells)
		if err != nil {
			t.Fatal(err)
		}
		failing := slots.Index(rapid.IntRange(0, len(cells)-1).Draw(t, "failing"))
		cells[failing].State, cells[failing].TargetWeight = slots.Failed, 0
		after, err := slots.Compile(2, cells)
		if err != nil {
			return // no cell is left to take over
		}
		served := servedBy(after, servedBy(before, nil))[before.Name(failing)]
		if served != before {
			t.Fatal("the topology before the failure is forgotten")
		}
		want := placementsOf(before, failing)
		received := map[slots.Index]receipt{}
		for i := range cells {
			if slots.Index(i) != failing {
				received[slots.Index(i)] = receipt{scope: scopeIn(want, slots.Index(i)), through: 5}
			}
		}
		for what, served := range map[string]*slots.Map{"known": before, "unknown": nil} {
			places, err := lastPlacements(after, served, failing, received)
			if err != nil {
				t.Fatal(err)
			}
			for slot, place := range want {
				if place != slots.None && places[slot] != place {
					t.Fatalf("slot %d, topology %s: copied to %d, was copied to %d", slot, what, places[slot], place)
				}
			}
			if what == "known" && resumable(places, received) == nil {
				t.Fatal("everything was received, and is compared again")
			}
		}
	})
}
