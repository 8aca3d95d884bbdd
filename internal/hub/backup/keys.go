package backup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// followInterval is how often the API servers of a backup cell are asked for the key that they use.
	followInterval = 20 * time.Second
	// renewInterval is how often copies under an earlier key are looked for, although the API servers use the same as before: a KMS plug-in
	// may have another.
	renewInterval = time.Hour
)

// checkKeys returns an error if a backup cell would not encrypt copies, or if its keys are not those of its API servers: what is written with
// others could be read by nobody who has the right ones.
func (s *source) checkKeys(ctx context.Context, target *cellstore.Store) error {
	if err := target.Admits(ctx, s.store); err != nil {
		return err
	}
	if _, err := target.FollowKeys(ctx); err != nil && !errors.Is(err, atrest.ErrNoAnswer) {
		return err
	}
	return nil
}

// renewKeys keeps the copies in all backup cells under the keys that their API servers use.
func (c *Controller) renewKeys(ctx context.Context, topology *slots.Map) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	done := map[*cellstore.Store]renewal{}
	for {
		for i := range topology.Cells() {
			target := topology.Cell(slots.Index(i))
			if target.State == slots.Failed {
				continue
			}
			if err := c.renewAt(ctx, target.Name, done); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("the keys of a cell cannot be followed yet", "cell", target.Name, "err", err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// renewal is when values were last encrypted again, and after how many changes of the keys.
type renewal struct {
	at      time.Time
	changes int
}

// renewAt encrypts the values of a cell again that are outdated, if there may be any.
func (c *Controller) renewAt(ctx context.Context, target string, done map[*cellstore.Store]renewal) error {
	store, err := c.Open(ctx, target)
	if err != nil || !store.HasKeys() {
		return err
	}
	changes, err := store.FollowKeys(ctx)
	if err != nil {
		return err
	}
	if last, before := done[store]; before && last.changes == changes && time.Since(last.at) < renewInterval {
		return nil
	}
	if err := c.renew(ctx, store); err != nil {
		return err
	}
	done[store] = renewal{time.Now(), changes}
	return nil
}

// renew encrypts again what is outdated and what nobody else can store again: copies, what moves have left behind, and the fence. What is written
// meanwhile has the new key by that.
func (c *Controller) renew(ctx context.Context, store *cellstore.Store) error {
	count := 0
	for _, root := range []string{Root, store.Prefix()} {
		for kv, err := range store.RangeReadable(ctx, root) {
			if err != nil {
				return err
			}
			// One that cannot be decrypted is replaced when its source is compared. None is stored with less protection than it has.
			if !kv.Outdated || kv.Value == nil || !store.Encrypts(kv.Key) || root != Root && !isReserved(store, kv) {
				continue
			}
			_, err := store.Txn(ctx, c.Term, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, kv.Value))
			if err != nil && !errors.Is(err, cellstore.ErrConflict) {
				return err
			}
			count++
		}
	}
	if count > 0 {
		klog.FromContext(ctx).Info("encrypted values again, with the key that the API servers of the cell use now", "cell", store.Cell, "values", count)
	}
	return nil
}

// fenceKeys are the beginnings of the keys of the fence.
var fenceKeys = []string{"leases/kube-system/cellplane-fence", "validatingadmissionpolicies/cellplane-", "validatingadmissionpolicybindings/cellplane-"}

// isReserved reports whether the fence of a cell lets only the hub manager write an object.
func isReserved(store *cellstore.Store, kv cellstore.KV) bool {
	relative, _ := store.Relative(kv.Key)
	if slices.ContainsFunc(fenceKeys, func(prefix string) bool { return strings.HasPrefix(relative, prefix) }) {
		return true
	}
	if !mayBeStale(kv.Value) {
		return false // most objects have no mark, and need not be parsed
	}
	object, err := cellstore.Parse(kv.Value)
	return err == nil && isStale(object)
}
