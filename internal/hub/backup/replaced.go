package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/cellplane/cellplane/internal/cellstore"
)

// ErrReplaced means that the store of a cell is not the one that its backup was made of, or an earlier state of it: it was lost and began again
// empty, or was restored. The backup has what the store lacks, and must not follow it.
var ErrReplaced = errors.New("the store of the cell is empty, or older than its backup")

// identityKey is the key, in the store of a cell, of the store's identity. A store that begins again does not have it.
const identityKey = "/cellplane/store-identity"

// identityOf returns the identity of a store, "" if nobody has given it one.
func identityOf(ctx context.Context, store *cellstore.Store) (string, error) {
	kv, _, err := store.Get(ctx, identityKey)
	return string(kv.Value), err
}

// identify reads the identity of the source. It gives one to a store that has none.
func (s *source) identify(ctx context.Context) error {
	var err error
	if s.identity, err = identityOf(ctx, s.store); err != nil || s.identity != "" {
		return err
	}
	identity := uuid.NewString()
	if _, err := s.store.Txn(ctx, s.term, []clientv3.Cmp{cellstore.Unchanged(identityKey, 0)}, cellstore.Put(identityKey, []byte(identity))); err != nil {
		return err // another may have been faster: the source starts again
	}
	s.identity = identity
	return nil
}

// checkAll fails if one of the backup cells has a backup of another store. Those that do not answer are checked before they are compared.
func (s *source) checkAll(ctx context.Context) error {
	var group errgroup.Group
	for _, target := range s.targets {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, firstTimeout)
			defer cancel()
			if err := s.check(limited, target); errors.Is(err, ErrReplaced) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// check fails if a backup cell has a backup of another store, or of a later state of this one.
func (s *source) check(ctx context.Context, target *cellstore.Store) error {
	received, err := receivedBy(ctx, target, s.store.Cell)
	if err != nil {
		return err
	}
	revision, err := s.store.Revision(ctx) // after the record was written
	if err != nil {
		return err
	}
	return received.check(s.identity, revision)
}

// check fails if what was received is not from a store with an identity, as of a revision or before.
func (r receipt) check(identity string, revision int64) error {
	switch {
	case r.store != "" && r.store != identity:
		return fmt.Errorf("%w: it is another store", ErrReplaced)
	case r.through > revision:
		return fmt.Errorf("%w: it is at revision %d, and the backup at %d", ErrReplaced, revision, r.through)
	default:
		return nil
	}
}

// CheckSource fails with ErrReplaced if other cells have received something from another store of a cell than the one it has now, or from a later
// state of it.
func (r Received) CheckSource(ctx context.Context, store *cellstore.Store) error {
	identity, err := identityOf(ctx, store)
	if err != nil {
		return err
	}
	revision, err := store.Revision(ctx)
	if err != nil {
		return err
	}
	for i := range r {
		if err := r[i].check(identity, revision); err != nil {
			return err
		}
	}
	return nil
}

// reached returns the highest revision of the source that was seen.
func (s *source) reached() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var highest int64
	for _, p := range s.pairs {
		p.mu.Lock()
		highest = max(highest, p.through)
		p.mu.Unlock()
	}
	return highest
}
