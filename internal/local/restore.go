package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/snapshot"
)

// restoringFile names the set that is being restored. A federation with some stores from a set and some from later must not start.
const restoringFile = "restoring"

// Restored tells what a restore has done.
type Restored struct {
	snapshot.Restored
	// Kept are the directories of the stores that were replaced.
	Kept []string
	// Emptied are the cells that the set does not have. They begin with empty stores.
	Emptied []string
}

// Restore replaces the stores of the hub and of all cells by those of a set. Clusters stay as they are. The federation must not run. After an
// error it can be repeated.
func (f *Federation) Restore(ctx context.Context, set *snapshot.Set) (Restored, error) {
	planes := map[string]*controlplane.ControlPlane{}
	for _, c := range f.ControlPlanes() {
		if c.Role() != controlplane.Member {
			planes[c.Name()] = c
		}
	}
	for _, name := range set.Names() {
		if planes[name] == nil {
			return Restored{}, fmt.Errorf("the set %s has a store %q, and the federation in %s has no such cell", set.Name(), name, f.dir)
		}
	}
	if planes[HubName] == nil || !slices.Contains(set.Names(), snapshot.Hub) {
		return Restored{}, errors.New("a federation without a hub cannot be restored")
	}
	r, err := f.prepareStores(ctx, set, planes)
	if err != nil {
		return Restored{}, err
	}
	if err := replaceFile(filepath.Join(f.dir, restoringFile), []byte(set.Dir+"\n")); err != nil {
		return Restored{}, err
	}
	suffix := ".before-" + time.Now().UTC().Format("20060102T150405.000Z")
	for name, plane := range planes {
		kept, err := replaceStore(plane.EtcdDir(), suffix)
		if err != nil {
			return Restored{}, err
		}
		if kept != "" {
			r.Kept = append(r.Kept, kept)
		}
		if !slices.Contains(set.Names(), name) {
			r.Emptied = append(r.Emptied, name)
		}
	}
	slices.Sort(r.Kept)
	slices.Sort(r.Emptied)
	return r, os.Remove(filepath.Join(f.dir, restoringFile))
}

// prepareStores makes all new stores beside the present ones. Until it has succeeded, nothing is changed.
func (f *Federation) prepareStores(ctx context.Context, set *snapshot.Set, planes map[string]*controlplane.ControlPlane) (r Restored, err error) {
	for name, plane := range planes {
		prepared := preparedDir(plane.EtcdDir())
		if err := os.RemoveAll(prepared); err != nil { // of an earlier attempt
			return r, err
		}
		if !slices.Contains(set.Names(), name) {
			continue
		}
		restored, err := set.Restore(ctx, name, snapshot.Member{
			Name: name, PeerURL: plane.EtcdPeerURL(), InitialCluster: name + "=" + plane.EtcdPeerURL(), Token: etcdToken, DataDir: prepared,
		})
		if err != nil {
			return r, err
		}
		if name == snapshot.Hub {
			r.Restored = restored
		}
	}
	return r, nil
}

// etcdToken is the default of --initial-cluster-token.
const etcdToken = "etcd-cluster"

func preparedDir(dir string) string { return dir + ".restored" }

// replaceStore puts the prepared directory, if there is one, into the place of another, and returns where that is then.
func replaceStore(dir, suffix string) (kept string, err error) {
	switch err := os.Rename(dir, dir+suffix); {
	case err == nil:
		kept = dir + suffix
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.Rename(preparedDir(dir), dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	return kept, nil
}

// checkRestored fails if a restore was interrupted.
func (f *Federation) checkRestored() error {
	set, err := os.ReadFile(filepath.Join(f.dir, restoringFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("a restore was interrupted, so some stores are older than others: repeat `cellplane restore %s`", string(set[:max(len(set)-1, 0)]))
}

// HubEtcd returns the address of the hub's etcd of the federation in a directory, and the files to reach it.
func HubEtcd(dir string) (endpoint, caFile, certFile, keyFile string, err error) {
	s, err := loadState(dir)
	if err != nil {
		return "", "", "", "", err
	}
	caFile, certFile, keyFile = controlplane.EtcdFilesIn(filepath.Join(dir, HubName))
	return fmt.Sprintf("https://127.0.0.1:%d", s.Ports[HubName].Etcd), caFile, certFile, keyFile, nil
}
