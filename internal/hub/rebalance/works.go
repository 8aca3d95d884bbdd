package rebalance

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// markWorks makes the old cell's engine stand back from Works. Each goes alone, at a revision of its own: a Work whose mark an engine
// never gets to see is one by which it would go on writing to a member.
func (m *Mover) markWorks(ctx context.Context, works []located) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.pace.now())
	for _, w := range works {
		group.Go(func() error {
			if err := m.markWork(ctx, w); err != nil {
				return fmt.Errorf("marking the Work %s in cell %s: %w", w.key, w.cell, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (m *Mover) markWork(ctx context.Context, work located) error {
	store := m.stores[work.cell]
	for {
		kv, err := store.read(ctx, work.key)
		if err != nil || kv.ModRevision == 0 {
			return err
		}
		value, err := cellstore.WithMark(kv.Value, cellstore.Mark{Labels: status(names.RebalanceMigrated)})
		if err != nil {
			return err
		}
		_, err = store.write(ctx, put{work.key, value, kv.ModRevision})
		switch {
		case errors.Is(err, cellstore.ErrConflict): // the engine has written it; it is read anew
		case err != nil:
			return err
		default:
			return m.written(Done, work.cell, work.key)
		}
	}
}
