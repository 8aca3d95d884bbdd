package failover

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// Whatever an engine or a client must get to see has a revision of its own: a watch that is resumed between two changes of one revision
// never tells of the second. Many such transactions are under way at once. What is stored frozen shares transactions, as it is seen when
// it is put to use.
const (
	// batch is how many copies become frozen objects in one transaction. etcd allows 128 operations by default, and each takes two.
	batch = 60
	// batchBytes bounds a transaction; etcd takes 1.5 MiB by default.
	batchBytes = 1 << 20
	// underWay is how many transactions a store is given at once. etcd writes to disk together what comes together.
	underWay = 64
)

// manyAtOnce returns a group for the transactions of one store. The first that fails ends the others.
func manyAtOnce(ctx context.Context) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(underWay)
	return group, ctx
}

// discard removes keys of a cell. Its engine sees each of them go.
func discard(ctx context.Context, cell *cellstore.Store, term cellstore.Term, keys []string) error {
	transactions, ctx := manyAtOnce(ctx)
	for _, key := range keys {
		transactions.Go(func() error {
			_, err := cell.Txn(ctx, term, nil, cellstore.Delete(key))
			return err
		})
	}
	return transactions.Wait()
}
