package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/cells"
)

// Saver saves sets.
type Saver struct {
	// Dir is the directory of the sets. It is made if it does not exist.
	Dir string
	// Topology reads the topology from the hub.
	Topology func(ctx context.Context) (*v1alpha1.CellTopology, error)
	// Hub is a client of the hub's etcd, and HubPrefix the prefix of the API server's keys there.
	Hub       *clientv3.Client
	HubPrefix string
	// Cell returns a client of the etcd of a cell.
	Cell func(ctx context.Context, name string) (*clientv3.Client, error)
	// Wait is how long to wait for the end of a change of cells.
	Wait time.Duration
	// Now returns the time.
	Now func() time.Time
}

const (
	// lockName is the file by which one process at a time saves sets in a directory.
	lockName = hidden + "lock"
	// pollInterval is how often the topology is read while a change is under way.
	pollInterval = time.Second
	// readTimeout bounds the read of a store's revision.
	readTimeout = 10 * time.Second
)

// errUnderWay means that a change of cells is under way, or has happened meanwhile.
var errUnderWay = errors.New("a change of cells is under way: no consistent set can be saved; try again when it has ended, see `cellplane cells list`")

// Save saves a set.
func (s *Saver) Save(ctx context.Context) (*Set, error) {
	unlock, err := lock(s.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeLeftovers(s.Dir); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	for {
		set, err := s.try(ctx)
		if !errors.Is(err, errUnderWay) {
			return set, err
		}
		select {
		case <-waiting.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

// lock makes the directory and locks it. The kernel releases the lock when the process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another process is saving snapshots in %s", dir)
	}
	return func() { file.Close() }, nil
}

// removeLeftovers removes what was not completed. The caller holds the lock.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), hidden+"partial-") || strings.HasPrefix(entry.Name(), hidden+"removed-")) {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// try saves a set if no change of cells is under way before and after.
func (s *Saver) try(ctx context.Context) (_ *Set, err error) {
	topology, err := s.stable(ctx)
	if err != nil {
		return nil, err
	}
	set := &Set{Format: format, Time: s.Now().UTC(), Epoch: topology.Generation, TopologyKey: s.topologyKey()}
	partial, err := os.MkdirTemp(s.Dir, hidden+"partial-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if set.Stores, err = s.saveStores(ctx, topology, partial); err != nil {
		return nil, err
	}
	after, err := s.stable(ctx)
	if err != nil {
		return nil, err
	}
	if after.Generation != topology.Generation {
		return nil, errUnderWay
	}
	if err := errors.Join(set.write(partial), syncDir(partial)); err != nil {
		return nil, err
	}
	if set.Dir, err = s.complete(partial, set.Time); err != nil {
		return nil, err
	}
	return set, nil
}

// topologyKey returns the key of the topology in the store of the hub.
func (s *Saver) topologyKey() string {
	return strings.TrimSuffix(s.HubPrefix, "/") + "/" + v1alpha1.GroupName + "/celltopologies/" + v1alpha1.CellTopologyName
}

// stable returns the topology if no change is under way.
func (s *Saver) stable(ctx context.Context) (*v1alpha1.CellTopology, error) {
	topology, err := s.Topology(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	if cells.Running(&topology.Spec) != "" || topology.Status.Phase != v1alpha1.TopologyStable || topology.Status.ObservedGeneration != topology.Generation {
		return nil, errUnderWay
	}
	return topology, nil
}

// saveStores saves the cells that have not failed, and then the hub.
func (s *Saver) saveStores(ctx context.Context, topology *v1alpha1.CellTopology, dir string) ([]Store, error) {
	var names []string
	for _, cell := range topology.Spec.Cells {
		if cell.State != v1alpha1.CellStateFailed {
			names = append(names, cell.Name)
		}
	}
	slices.Sort(names)
	stores := make([]Store, len(names))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, name := range names {
		group.Go(func() error {
			client, err := s.Cell(groupCtx, name)
			if err != nil {
				return err
			}
			stores[i], err = save(groupCtx, client, name, dir)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := s.checkHub(ctx); err != nil {
		return nil, err
	}
	hub, err := save(ctx, s.Hub, Hub, dir)
	return append([]Store{hub}, stores...), err
}

// checkHub fails if the hub's store is another one than that of the topology.
func (s *Saver) checkHub(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := s.Hub.Get(ctx, s.topologyKey(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading the store of the hub: %w", err)
	}
	if found.Count == 0 {
		return fmt.Errorf("the store of the hub has no key %s: is it the etcd of the hub, and is the prefix that of its API server?", s.topologyKey())
	}
	return nil
}

// save saves one store and checks the file.
func save(ctx context.Context, client *clientv3.Client, name, dir string) (_ Store, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving the store of %s: %w", name, err)
		}
	}()
	least, err := revision(ctx, client)
	if err != nil {
		return Store{}, err
	}
	content, err := client.Snapshot(ctx)
	if err != nil {
		return Store{}, err
	}
	defer content.Close()
	file := filepath.Join(dir, name+".db")
	if err := writeFile(file, content); err != nil {
		return Store{}, err
	}
	if err := checkEnding(ctx, file); err != nil {
		return Store{}, err
	}
	status, err := etcdsnapshot.NewV3(zap.NewNop()).Status(file) // reads and checks all of it
	if err != nil {
		return Store{}, err
	}
	compacted, err := compactedRevision(file)
	if err != nil {
		return Store{}, err
	}
	reached := max(status.Revision, compacted, firstRevision)
	if reached < least {
		return Store{}, fmt.Errorf("the member of etcd that answered is behind: it has revision %d, and others %d", reached, least)
	}
	sum, size, err := digest(ctx, file)
	return Store{Name: name, Revision: reached, Keys: status.TotalKey, Size: size, SHA256: sum}, err
}

// firstRevision is that of an etcd that has no keys.
const firstRevision = 1

// compactedRevision returns up to which revision the history was removed from a file. It is later than the last key if that was deleted.
func compactedRevision(file string) (int64, error) {
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var latest int64
	err = db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(schema.Meta.Name())
		if meta == nil {
			return errors.New("it is not a snapshot of an etcd")
		}
		for _, key := range [][]byte{schema.ScheduledCompactKeyName, schema.FinishedCompactKeyName} {
			if value := meta.Get(key); value != nil {
				latest = max(latest, mvcc.BytesToRev(value).Main)
			}
		}
		return nil
	})
	return latest, err
}

// revision returns the revision that a majority of the members has reached.
func revision(ctx context.Context, client *clientv3.Client) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answer, err := client.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// checkEnding fails if a stream ended early: etcd sends the hash of a snapshot at its end.
func checkEnding(ctx context.Context, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return checkHash(ctx, file, info.Size())
}

// complete gives the directory the name of a set: the time, with a number if there is one of that time.
func (s *Saver) complete(partial string, at time.Time) (string, error) {
	base := filepath.Join(s.Dir, at.Format("20060102T150405Z"))
	for i := 1; ; i++ {
		dir := base
		if i > 1 {
			dir = fmt.Sprintf("%s-%d", base, i)
		}
		if _, err := os.Lstat(dir); err == nil {
			continue // the lock excludes other writers
		}
		return dir, errors.Join(os.Rename(partial, dir), syncDir(s.Dir))
	}
}
