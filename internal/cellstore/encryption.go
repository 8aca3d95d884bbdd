package cellstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cellplane/cellplane/internal/atrest"
)

// BackupRoot is the prefix of copies that a store keeps for other cells: BackupRoot + cell + "/" + the key in the cell, without its prefix.
const BackupRoot = "/cellplane/backup/"

// Encrypt sets the keys of the store, before its first use. Values are decrypted when they are read, and encrypted when they are written by
// Txn. With unprotected, objects may be copied to stores that do not encrypt them.
func (s *Store) Encrypt(keys *atrest.Keys, unprotected bool) {
	s.keys, s.unprotected = keys, unprotected
}

// object returns the key of an object without its prefix, and whether API servers read it. It is not found for keys of the hub manager
// itself, which hold no objects.
func (s *Store) object(key string) (relative string, served, found bool) {
	if relative, served = s.Relative(key); served {
		return relative, true, true
	}
	kept, found := strings.CutPrefix(key, BackupRoot)
	if !found {
		return "", false, false
	}
	_, relative, found = strings.Cut(kept, "/")
	return relative, false, found
}

// UnreadableError is the error of a value that cannot be decrypted.
type UnreadableError struct {
	// Cell has it.
	Cell string
	// KV is the value as it is stored.
	KV  KV
	err error
}

// Error implements error.
func (u *UnreadableError) Error() string {
	return fmt.Sprintf("reading the store of cell %s: %v", u.Cell, u.err)
}

// Unwrap returns why.
func (u *UnreadableError) Unwrap() error { return u.err }

// open decrypts what was read.
func (s *Store) open(ctx context.Context, found *mvccpb.KeyValue) (KV, error) {
	kv := KV{Key: string(found.Key), Value: found.Value, ModRevision: found.ModRevision, Lease: found.Lease}
	relative, _, isObject := s.object(kv.Key)
	if !isObject {
		return kv, nil
	}
	plain, outdated, err := s.keys.Open(ctx, kv.Key, relative, found.Value)
	if err != nil {
		return KV{}, &UnreadableError{s.Cell, kv, err}
	}
	kv.Value, kv.Outdated = plain, outdated
	return kv, nil
}

// Opened returns what a watch has delivered, decrypted.
func (s *Store) Opened(ctx context.Context, event *clientv3.Event) (KV, error) {
	if event.Type == clientv3.EventTypeDelete {
		return KV{Key: string(event.Kv.Key), ModRevision: event.Kv.ModRevision}, nil
	}
	return s.open(ctx, event.Kv)
}

// sealed returns operations with encrypted values.
func (s *Store) sealed(ctx context.Context, operations []clientv3.Op) ([]clientv3.Op, error) {
	if s.keys == nil {
		return operations, nil
	}
	all := make([]clientv3.Op, len(operations))
	for i, operation := range operations {
		all[i] = operation
		if !operation.IsPut() {
			continue
		}
		key := string(operation.KeyBytes())
		relative, served, isObject := s.object(key)
		if !isObject {
			continue
		}
		value, err := s.keys.Seal(ctx, key, relative, operation.ValueBytes(), served)
		if err != nil {
			return nil, fmt.Errorf("writing to the store of cell %s: %w", s.Cell, err)
		}
		all[i] = clientv3.OpPut(key, string(value))
	}
	return all, nil
}

// Encrypts reports whether what is stored under a key is encrypted.
func (s *Store) Encrypts(key string) bool {
	relative, _, isObject := s.object(key)
	return isObject && s.keys.Encrypts(relative)
}

// Admits returns an error if copies of a store's objects in this one would be protected less: an object that is encrypted there would not be
// encrypted here. API servers decide that, so they are asked first. What those of the other store may encrypt counts if none of them answers.
func (s *Store) Admits(ctx context.Context, from *Store) error {
	if from.unprotected || from.keys == nil {
		return nil
	}
	for _, store := range []*Store{from, s} {
		if _, err := store.FollowKeys(ctx); err != nil && !errors.Is(err, atrest.ErrNoAnswer) {
			return err
		}
	}
	if resource, weaker := atrest.Weaker(from.keys, s.keys); weaker {
		return fmt.Errorf("%w: cell %s encrypts %s at rest and cell %s does not; encrypt them there too, or set spec.etcd.encryption.allowUnencryptedCopies of the Cell %s",
			atrest.ErrWeaker, from.Cell, resource, s.Cell, from.Cell)
	}
	return nil
}

// CheckKeys has the API servers of the cell store probes, and returns an error if the keys are not theirs.
func (s *Store) CheckKeys(ctx context.Context, probe atrest.Probe) error {
	if err := atrest.Check(ctx, s.keys, probe); err != nil {
		return fmt.Errorf("cell %s: %w", s.Cell, err)
	}
	return nil
}

// FollowKeys has what is written encrypted as the API servers of the cell do now, and returns how often that has changed.
func (s *Store) FollowKeys(ctx context.Context) (changes int, err error) {
	if changes, err = s.keys.Follow(ctx); err != nil {
		err = fmt.Errorf("cell %s: %w", s.Cell, err)
	}
	return changes, err
}

// HasKeys reports whether the Cell names keys.
func (s *Store) HasKeys() bool { return s.keys != nil }

// ErrAbsent means that there is no such key.
var ErrAbsent = errors.New("the key does not exist")

// Stored returns what is stored under a key as it is. It fails with ErrAbsent if the key does not exist.
func (s *Store) Stored(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	response, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s in cell %s: %w", key, s.Cell, err)
	}
	for _, found := range response.Kvs {
		return found.Value, nil
	}
	return nil, fmt.Errorf("reading %s in cell %s: %w", key, s.Cell, ErrAbsent)
}
