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

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/hub/rebalance"
	"github.com/cellplane/cellplane/internal/slots"
)

// Emptying prepares a cell that had failed for its return: it must not bring back what has changed or gone meanwhile.
type Emptying struct {
	// Topology is the one in which the cell joins again.
	Topology *slots.Map
	// Returning is the store of the cell.
	Returning *cellstore.Store
	// Stores are those of the other cells, by name.
	Stores map[string]*cellstore.Store
	// Term is that of the hub manager.
	Term cellstore.Term
	// Doubtful tells that not every copy of the cell came to life, because cells that kept some had failed too.
	Doubtful bool
	// Dir is where the snapshot and what only the cell had are kept.
	Dir string
	// Now is the time, for the names of files.
	Now time.Time
}

// Emptied tells what was found.
type Emptied struct {
	// Snapshot is the file with everything the cell held.
	Snapshot string
	// Salvaged are the files with objects, written to the cell, that no backup had received.
	Salvaged []string
	// Removed counts the objects that were taken out of the cell.
	Removed int
}

// Run keeps a snapshot and what would be lost, then empties the cell. Nothing is removed before everything is on disk.
func (e *Emptying) Run(ctx context.Context) (Emptied, error) {
	var result Emptied
	dir := filepath.Join(e.Dir, e.Returning.Cell+"-"+e.Now.UTC().Format("20060102T150405.000Z"))
	lost, doomed, err := e.survey(ctx)
	if err != nil {
		return result, fmt.Errorf("looking through cell %s before it is emptied: %w", e.Returning.Cell, err)
	}
	if len(doomed) == 0 {
		return result, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return result, err
	}
	if result.Snapshot, err = e.snapshot(ctx, filepath.Join(dir, "snapshot.db")); err != nil {
		return result, fmt.Errorf("keeping a snapshot of cell %s: %w", e.Returning.Cell, err)
	}
	for _, kv := range lost {
		file, err := e.keep(dir, kv)
		if err != nil {
			return result, fmt.Errorf("keeping %s of cell %s: %w", kv.Key, e.Returning.Cell, err)
		}
		result.Salvaged = append(result.Salvaged, file)
	}
	if result.Removed, err = e.remove(ctx, doomed); err != nil {
		return result, fmt.Errorf("emptying cell %s: %w", e.Returning.Cell, err)
	}
	return result, nil
}

// survey returns what no backup had received when the cell failed, and all keys that have to go.
func (e *Emptying) survey(ctx context.Context) (lost []cellstore.KV, doomed []string, err error) {
	reached := map[string]int64{}
	for name, store := range e.Stores {
		progress, err := backup.ProgressOf(ctx, store, e.Returning.Cell)
		if err != nil {
			return nil, nil, err
		}
		reached[name] = progress.Revision
	}
	for kv, err := range e.Returning.Range(ctx, e.Returning.Prefix(), 0) {
		if err != nil {
			return nil, nil, err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			continue // no object of the API
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local {
			continue
		}
		doomed = append(doomed, kv.Key)
		if !class.Federated() || standing(object) == rebalance.Left {
			continue
		}
		received := kv.ModRevision <= e.reachedFor(slot, reached)
		if received && !e.Doubtful {
			continue
		}
		has, err := e.has(ctx, slot, object, kv, received)
		if err != nil {
			return nil, nil, err
		}
		if !has {
			lost = append(lost, kv)
		}
	}
	return lost, doomed, nil
}

// reachedFor returns up to which revision the copies of a slot's objects reach: those of the cell that took the slot over, or the least
// of all if that has no copies of the cell.
func (e *Emptying) reachedFor(slot slots.Slot, reached map[string]int64) int64 {
	route := e.Topology.Route(slot)
	for _, keeper := range []slots.Index{route.Old, route.Backup} {
		if revision := reached[e.Topology.Name(keeper)]; revision > 0 {
			return revision
		}
	}
	least := int64(-1)
	for _, revision := range reached {
		if least < 0 || revision < least {
			least = revision
		}
	}
	return max(least, 0)
}

// has reports whether the federation has an object, so that nothing is lost: just this value or, if the value has reached a backup, the
// object in any state.
func (e *Emptying) has(ctx context.Context, slot slots.Slot, object *cellstore.Object, kv cellstore.KV, received bool) (bool, error) {
	store := e.Stores[e.Topology.Name(e.Topology.Route(slot).Old)]
	if store == nil {
		return false, nil
	}
	relative, _ := e.Returning.Relative(kv.Key)
	there, _, err := store.Get(ctx, store.Key(relative))
	if err != nil || there.ModRevision == 0 {
		return false, err
	}
	if !received {
		plain, err := unmarked(kv.Value)
		return bytes.Equal(there.Value, kv.Value) || bytes.Equal(there.Value, plain), err
	}
	known, err := cellstore.Parse(there.Value)
	return err == nil && known.UID == object.UID, nil
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

// keep writes an object as YAML, or as it is stored if it cannot be read.
func (e *Emptying) keep(dir string, kv cellstore.KV) (string, error) {
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

func (e *Emptying) remove(ctx context.Context, keys []string) (int, error) {
	removed := 0
	for len(keys) > 0 {
		n := min(len(keys), batch)
		operations := make([]clientv3.Op, n)
		for i, key := range keys[:n] {
			operations[i] = cellstore.Delete(key)
		}
		if _, err := e.Returning.Txn(ctx, e.Term, nil, operations...); err != nil {
			return removed, err
		}
		removed, keys = removed+n, keys[n:]
	}
	// What it kept of others is of then.
	_, err := e.Returning.Txn(ctx, e.Term, nil, clientv3.OpDelete(backup.Root, clientv3.WithPrefix()))
	return removed, err
}
