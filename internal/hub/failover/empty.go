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
		return result, e.beginAnew(ctx)
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
	if err := discard(ctx, e.Returning, e.Term, doomed); err != nil {
		return result, fmt.Errorf("emptying cell %s: %w", e.Returning.Cell, err)
	}
	result.Removed = len(doomed)
	return result, e.beginAnew(ctx)
}

// survey returns what no backup had received when the cell failed, and all keys that have to go.
func (e *Emptying) survey(ctx context.Context) (lost []cellstore.KV, doomed []string, err error) {
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
			continue // no object of the API
		}
		class, slot := cellstore.Classify(object)
		if class == cellstore.Local {
			continue
		}
		doomed = append(doomed, kv.Key)
		if !class.Federated() || standing(object) == handover.Moved {
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
	return lost, doomed, nil
}

// has reports whether the federation has just this value, so that nothing is lost.
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

// beginAnew has the cell keep nothing of others, as that is of then, and nobody vouch for what it has: its store may be a new one.
func (e *Emptying) beginAnew(ctx context.Context) error {
	if _, err := e.Returning.Txn(ctx, e.Term, nil, backup.Wipe()...); err != nil {
		return err
	}
	for _, keeper := range e.Stores {
		if _, err := keeper.Txn(ctx, e.Term, nil, backup.Forget(e.Returning.Cell)...); err != nil {
			return err
		}
	}
	return nil
}
