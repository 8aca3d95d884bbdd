package failover

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// Every change that an engine or a client must see has its own revision: a watch that is resumed between two changes
// of one revision never shows the second. Many such transactions are under way at once. Frozen objects share
// transactions: they are seen when they are activated.
const (
	// batch is the maximum number of copies in a transaction. etcd allows 128 operations by default, and each copy
	// takes two.
	batch = 60
	// batchBytes bounds a transaction; etcd takes 1.5 MiB by default.
	batchBytes = 1 << 20
	// concurrency is the number of concurrent transactions per store. etcd writes concurrent ones to disk together.
	concurrency = 64
)

// newTransactions returns a group for the transactions of one store. The first that fails ends the others.
func newTransactions(ctx context.Context) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	return group, ctx
}

// removeKeys removes keys of a cell, each at its own revision.
func removeKeys(ctx context.Context, cell *cellstore.Store, term cellstore.Term, keys []string) error {
	transactions, ctx := newTransactions(ctx)
	for _, key := range keys {
		transactions.Go(func() error {
			_, err := cell.Txn(ctx, term, nil, cellstore.Delete(key))
			return err
		})
	}
	return transactions.Wait()
}
