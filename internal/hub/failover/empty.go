package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

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
	// Removed counts the objects that were removed from the cell.
	Removed int
}

// Run saves a snapshot and the objects that no backup has, then empties the cell. Nothing is removed before
// everything is on disk.
func (e *Emptying) Run(ctx context.Context) (Emptied, error) {
	var result Emptied
	dir := filepath.Join(e.Dir, e.Returning.Cell+"-"+e.Now.UTC().Format("20060102T150405.000Z"))
	lost, keys, err := e.read(ctx)
	if err != nil {
		return result, fmt.Errorf("reading cell %s before it is emptied: %w", e.Returning.Cell, err)
	}
	if len(keys) == 0 {
		return result, e.reset(ctx)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return result, err
	}
	if result.Snapshot, err = e.snapshot(ctx, filepath.Join(dir, "snapshot.db")); err != nil {
		return result, fmt.Errorf("saving a snapshot of cell %s: %w", e.Returning.Cell, err)
	}
	for _, kv := range lost {
		file, err := e.save(dir, kv)
		if err != nil {
			return result, fmt.Errorf("saving %s of cell %s: %w", kv.Key, e.Returning.Cell, err)
		}
		result.Salvaged = append(result.Salvaged, file)
	}
	if err := removeKeys(ctx, e.Returning, e.Term, keys); err != nil {
		return result, fmt.Errorf("emptying cell %s: %w", e.Returning.Cell, err)
	}
	result.Removed = len(keys)
	return result, e.reset(ctx)
}

// read returns the objects that no backup had received when the cell failed, and all keys to remove.
func (e *Emptying) read(ctx context.Context) (lost []cellstore.KV, keys []string, err error) {
	received, err := backup.ReceivedBy(ctx, e.Stores, e.Returning.Cell)
	if err != nil {
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

func (e *Emptying) snapshot(ctx context.Context, file string) (_ string, err error) {
	snapshot, err := e.Returning.Client().Snapshot(ctx)
	if err != nil {
		return "", err
	}
	defer snapshot.Close()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, snapshot); err != nil {
		return "", err
	}
	return file, out.Sync()
}

// save writes an object as YAML, or as it is stored if it cannot be decoded.
func (e *Emptying) save(dir string, kv cellstore.KV) (string, error) {
	relative, _ := e.Returning.Relative(kv.Key)
	file := filepath.Join(dir, strings.ReplaceAll(relative, "/", "_"))
	content, err := asYAML(kv.Value)
	if err != nil {
		content, file = kv.Value, file+".stored"
	} else {
		file += ".yaml"
	}
	return file, os.WriteFile(file, content, 0o600)
}

func asYAML(value []byte) ([]byte, error) {
	if len(value) > 0 && value[0] == '{' {
		return yaml.JSONToYAML(value)
	}
	object, err := runtime.Decode(protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme), value)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(text)
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
