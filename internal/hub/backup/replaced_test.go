package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testReplaced takes away everything that a cell has stored, as when its store begins again empty. The backup must not follow that, and says so.
func testReplaced(t *testing.T, stores map[string]*cellstore.Store, term cellstore.Term) {
	const cell, target = "cell-a", "cell-b"
	normal := compiled(t, 5, cell, target)
	name := ""
	for i := 0; name == ""; i++ {
		if n := fmt.Sprintf("replaced-%d", i); normal.Name(normal.Route(slots.Of("default", n)).New) == cell {
			name = n
		}
	}
	store, key := stores[cell], "configmaps/default/"+name
	value := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q}}`, name)
	put := func() int64 {
		t.Helper()
		revision, err := store.Txn(t.Context(), term, nil, cellstore.Put(store.Key(key), value))
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	kept := func() {
		t.Helper()
		if kv, _, err := stores[target].Get(t.Context(), Prefix(cell)+key); err != nil || kv.ModRevision == 0 {
			t.Errorf("the copy is gone (%v)", err)
		}
	}
	begin := func(epoch int64) (c *Controller, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		c = &Controller{Term: term, Open: func(_ context.Context, cell string) (*cellstore.Store, error) { return stores[cell], nil }}
		c.Set(compiled(t, epoch, cell, target))
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		return c, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	replaced := func(c *Controller) {
		t.Helper()
		testenv.Eventually(t, "the controller reports that the store was replaced", func(context.Context) (bool, error) {
			state := c.States()[cell]
			return state.Replaced, fmt.Errorf("its state is %+v", state)
		})
		kept()
	}
	c, end := begin(5)
	if err := c.WaitCopied(t.Context(), cell, put()); err != nil {
		t.Fatal(err)
	}
	end()
	identity, err := identityOf(t.Context(), store)
	if err != nil || identity == "" {
		t.Fatalf("the store has the identity %q (%v)", identity, err)
	}

	// 1. Another store, which is empty.
	if _, err := store.Txn(t.Context(), term, nil, cellstore.Delete(store.Key(key)), cellstore.Delete(identityKey)); err != nil {
		t.Fatal(err)
	}
	c, end = begin(6)
	replaced(c)
	end()
	// The failover of the cell promotes the copies as they are.
	failed := &Controller{Term: term, Open: c.Open}
	failed.Set(compiledAs(t, 7, slots.Cell{Name: cell, State: slots.Failed}, slots.Cell{Name: target}))
	if err := failed.WaitCopied(t.Context(), cell, 1); !errors.Is(err, ErrReplaced) {
		t.Errorf("copying the tail of another store: %v", err)
	}
	kept()

	// 2. The same store, in an earlier state.
	if _, err := store.Txn(t.Context(), term, nil, cellstore.Put(identityKey, []byte(identity))); err != nil {
		t.Fatal(err)
	}
	later, err := json.Marshal(progress{Revision: 1 << 40, Time: time.Now(), Store: identity})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stores[target].Txn(t.Context(), term, nil, cellstore.Put(progressKey(cell), later)); err != nil {
		t.Fatal(err)
	}
	c, end = begin(8)
	replaced(c)
	end()

	// 3. Once the copies are forgotten, as when the cell has joined again, the store is backed up as it is.
	if _, err := stores[target].Txn(t.Context(), term, nil, Forget(cell)...); err != nil {
		t.Fatal(err)
	}
	c, end = begin(9)
	defer end()
	if err := c.WaitCopied(t.Context(), cell, put()); err != nil {
		t.Error(err)
	}
}

// TestReceiptCheck checks what counts as another store.
func TestReceiptCheck(t *testing.T) {
	for name, test := range map[string]struct {
		of       receipt
		identity string
		replaced bool
	}{
		"the same":                          {receipt{through: 7, store: "a"}, "a", false},
		"nothing was received":              {receipt{}, "a", false},
		"received by an earlier release":    {receipt{through: 7}, "a", false},
		"another":                           {receipt{through: 7, store: "a"}, "b", true},
		"one without an identity":           {receipt{through: 7, store: "a"}, "", true},
		"the same, in an earlier state":     {receipt{through: 9, store: "a"}, "a", true},
		"an earlier one, by an old release": {receipt{through: 9}, "", true},
	} {
		if err := test.of.check(test.identity, 8); errors.Is(err, ErrReplaced) != test.replaced {
			t.Errorf("%s: %v", name, err)
		}
	}
}
