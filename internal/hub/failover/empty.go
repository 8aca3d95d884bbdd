package failover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/slots"
)

// Emptying empties a cell that had failed, before it joins again: it must not bring back outdated or deleted objects.
type Emptying struct {
	// Topology in which the cell joins again.
	Topology *slots.Map
	// Returning is the store of the cell.
	Returning *cellstore.Store
	// Stores of the other cells, by name.
	Stores map[string]*cellstore.Store
	// Term of the hub manager.
	Term cellstore.Term
	// Dir is where the snapshot and the objects that no backup has are saved.
	Dir string
	// Now is the time for the names of files.
	Now time.Time
}

// Emptied is the result of emptying a cell.
type Emptied struct {
	// Snapshot is the file with everything the cell held.
	Snapshot string
	// Salvaged are the files with objects that no backup had received.
	Salvaged []string
	// Undeleted are objects that were deleted in the cell, and exist because no backup had received that.
	Undeleted []string
	// Unsure is set if the history of the cell does not tell which.
	Unsure bool
	// Removed counts the objects that were removed from the cell.
	Removed int
}

// Run saves a snapshot and the objects that no backup has, then empties the cell. Nothing is removed before
// everything is on disk.
func (e *Emptying) Run(ctx context.Context) (Emptied, error) {
	var result Emptied
	lost, keys, err := e.read(ctx)
	if err != nil {
		return result, fmt.Errorf("reading cell %s before it is emptied: %w", e.Returning.Cell, err)
	}
	if err := e.findUndeleted(ctx, keys, &result); err != nil {
		return result, fmt.Errorf("looking for deletions in cell %s that no backup has: %w", e.Returning.Cell, err)
	}
	if len(keys) == 0 {
		return result, e.reset(ctx)
	}
	if err := e.saveAll(ctx, lost, &result); err != nil {
		return result, err
	}
	if err := removeKeys(ctx, e.Returning, e.Term, keys); err != nil {
		return result, fmt.Errorf("emptying cell %s: %w", e.Returning.Cell, err)
	}
	result.Removed = len(keys)
	return result, e.reset(ctx)
}

// saveAll saves the snapshot and the objects in a directory that has its final name only when it is complete, so that attempts
// that fail leave at most one partial directory.
func (e *Emptying) saveAll(ctx context.Context, objects []cellstore.KV, result *Emptied) error {
	partial := filepath.Join(e.Dir, e.Returning.Cell+".partial")
	dir := filepath.Join(e.Dir, e.Returning.Cell+"-"+e.Now.UTC().Format("20060102T150405.000Z"))
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return err
	}
	if err := e.snapshot(ctx, filepath.Join(partial, snapshotFile)); err != nil {
		return fmt.Errorf("saving a snapshot of cell %s: %w", e.Returning.Cell, err)
	}
	var salvaged []string
	for _, kv := range objects {
		file, err := e.save(ctx, partial, kv)
		if err != nil {
			return fmt.Errorf("saving %s of cell %s: %w", kv.Key, e.Returning.Cell, err)
		}
		salvaged = append(salvaged, filepath.Join(dir, filepath.Base(file)))
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	result.Snapshot, result.Salvaged = filepath.Join(dir, snapshotFile), salvaged
	return nil
}

// snapshotFile is the name of the snapshot in its directory.
const snapshotFile = "snapshot.db"

// read returns the objects that no backup had received when the cell failed, and all keys to remove.
func (e *Emptying) read(ctx context.Context) (lost []cellstore.KV, keys []string, err error) {
	received, err := backup.ReceivedBy(ctx, e.Stores, e.Returning.Cell)
	if err != nil {
		return nil, nil, err
	}
	if err := received.CheckSource(ctx, e.Returning); errors.Is(err, backup.ErrReplaced) {
		received = nil // the revisions are those of another store
	} else if err != nil {
		return nil, nil, err
	}
	for kv, err := range e.Returning.Range(ctx, e.Returning.Prefix(), 0) {
		if err != nil {
			return nil, nil, err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			continue // no API object
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local {
			continue
		}
		keys = append(keys, kv.Key)
		if !class.Federated() || statusOfObject(object) == handover.Moved {
			continue
		}
		if kv.ModRevision <= received.Through(slot) {
			continue
		}
		has, err := e.has(ctx, slot, kv)
		if err != nil {
			return nil, nil, err
		}
		if !has {
			lost = append(lost, kv)
		}
	}
	return lost, keys, nil
}

// has reports whether the slot's owner holds exactly this value.
func (e *Emptying) has(ctx context.Context, slot slots.Slot, kv cellstore.KV) (bool, error) {
	store := e.Stores[e.Topology.Name(e.Topology.Route(slot).Old)]
	if store == nil {
		return false, nil
	}
	relative, _ := e.Returning.Relative(kv.Key)
	there, _, err := store.Get(ctx, store.Key(relative))
	if err != nil || there.ModRevision == 0 {
		return false, err
	}
	plain, err := unmarked(kv.Value)
	return bytes.Equal(there.Value, kv.Value) || bytes.Equal(there.Value, plain), err
}

// findUndeleted finds the objects that the cell had when a backup received its last write, that it no longer has, and that were promoted. The keys
// are those of all federated objects that it has, sorted.
func (e *Emptying) findUndeleted(ctx context.Context, keys []string, result *Emptied) error {
	received, err := backup.ReceivedBy(ctx, e.Stores, e.Returning.Cell)
	if err != nil {
		return err
	}
	for _, revision := range received.Revisions() {
		for kv, err := range e.Returning.Range(ctx, e.Returning.Prefix(), revision) {
			if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) || errors.Is(err, atrest.ErrKeys) {
				result.Unsure = true
				break
			}
			if err != nil {
				return err
			}
			if _, there := slices.BinarySearch(keys, kv.Key); there {
				continue
			}
			undeleted, err := e.undeleted(ctx, received, revision, kv)
			if err != nil {
				return err
			}
			if undeleted {
				relative, _ := e.Returning.Relative(kv.Key)
				result.Undeleted = append(result.Undeleted, relative)
			}
		}
	}
	return nil
}

// undeleted reports whether an object that the cell has deleted since a revision exists in another.
func (e *Emptying) undeleted(ctx context.Context, received backup.Received, revision int64, kv cellstore.KV) (bool, error) {
	object, err := cellstore.Parse(kv.Value)
	if err != nil {
		return false, nil // no API object
	}
	class, slot := cellstore.Classify(object)
	store := e.Stores[e.Topology.Name(e.Topology.Route(slot).Old)]
	if !class.Federated() || statusOfObject(object) == handover.Moved || received.Through(slot) != revision || store == nil {
		return false, nil
	}
	relative, _ := e.Returning.Relative(kv.Key)
	there, _, err := store.Get(ctx, store.Key(relative))
	if err != nil || there.ModRevision == 0 {
		return false, err
	}
	same, err := cellstore.Parse(there.Value)
	return err == nil && same.UID == object.UID && statusOfObject(same) != handover.Moved, nil
}

func (e *Emptying) snapshot(ctx context.Context, file string) (err error) {
	snapshot, err := e.Returning.Client().Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, snapshot); err != nil {
		return err
	}
	return out.Sync()
}

// save writes an object as YAML, or as it is stored if it cannot be decoded. One that is stored encrypted is encrypted in the file, too.
func (e *Emptying) save(ctx context.Context, dir string, kv cellstore.KV) (string, error) {
	relative, _ := e.Returning.Relative(kv.Key)
	file := filepath.Join(dir, strings.ReplaceAll(relative, "/", "_"))
	if e.Returning.HasKeys() {
		stored, err := e.Returning.Stored(ctx, kv.Key)
		if err != nil {
			return "", err
		}
		if atrest.IsEncrypted(stored) {
			sealed := cellstore.Sealed{Cell: e.Returning.Cell, Key: relative, Stored: stored}
			return file + cellstore.SealedSuffix, sealed.WriteFile(file + cellstore.SealedSuffix)
		}
	}
	content, err := cellstore.AsYAML(kv.Value)
	if err != nil {
		content, file = kv.Value, file+".stored"
	} else {
		file += ".yaml"
	}
	return file, os.WriteFile(file, content, 0o600)
}

// reset removes the cell's outdated copies of others, and in all other cells the record of what was received from it:
// its store may be a new one.
func (e *Emptying) reset(ctx context.Context) error {
	if _, err := e.Returning.Txn(ctx, e.Term, nil, backup.Wipe()...); err != nil {
		return err
	}
	for _, backupCell := range e.Stores {
		if _, err := backupCell.Txn(ctx, e.Term, nil, backup.Forget(e.Returning.Cell)...); err != nil {
			return err
		}
	}
	return nil
}
