package topology

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
)

// keptFile is what a Tracker saves on disk: the current topology, and earlier ones without endpoints.
type keptFile struct {
	Topology
	History []Topology `json:"history,omitempty"`
}

func (t *Tracker) load() (keptFile, error) {
	var kept keptFile
	if t.file == "" {
		return kept, fs.ErrNotExist
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return kept, err
	}
	return kept, json.Unmarshal(data, &kept)
}

// restore takes the saved topologies. Earlier ones only serve to carry positions forward, so it does not connect to their cells.
func (t *Tracker) restore(ctx context.Context, kept keptFile) {
	t.mu.Lock()
	for _, earlier := range kept.History {
		view, invalid, _ := compile(earlier, nil)
		if invalid != nil {
			klog.FromContext(ctx).Error(invalid, "a saved earlier topology is invalid; watches of its epoch have to relist", "epoch", earlier.Epoch)
			t.history, t.kept = nil, nil
			continue
		}
		close(view.superseded)
		view.Hub = t.Hub
		view.number(t.history)
		t.history, t.kept = append(t.history, view), append(t.kept, earlier)
	}
	t.mu.Unlock()
	t.take(ctx, kept.Topology)
}

// save writes the topologies to disk. The file holds credentials, so only its owner may read it.
func (t *Tracker) save() error {
	if t.file == "" {
		return nil
	}
	t.mu.Lock()
	last := len(t.kept) - 1
	kept := keptFile{Topology: t.kept[last]}
	for _, earlier := range t.kept[:last] {
		kept.History = append(kept.History, earlier.withoutEndpoints())
	}
	t.mu.Unlock()
	data, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return replaceFile(t.file, data)
}

func (t Topology) withoutEndpoints() Topology {
	t.Cells, t.Left = append([]Cell(nil), t.Cells...), append([]LeftCell(nil), t.Left...)
	for i := range t.Cells {
		t.Cells[i].Endpoint = fleet.Endpoint{}
	}
	for i := range t.Left {
		t.Left[i].Endpoint = fleet.Endpoint{}
	}
	return t
}

func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	scratch := path + ".new"
	if err := os.WriteFile(scratch, data, 0o600); err != nil {
		return err
	}
	return os.Rename(scratch, path)
}
