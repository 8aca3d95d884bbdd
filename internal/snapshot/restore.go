package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

const (
	// revisionsAhead is by how much the revision of a restored store is higher than when it was saved: more than it can have had since.
	revisionsAhead = 1_000_000_000
	// epochsAhead is by how much the epoch is higher.
	epochsAhead = 100
)

// Member is a member of an etcd, as its flags describe it.
type Member struct {
	Name string
	// PeerURL is --initial-advertise-peer-urls, InitialCluster --initial-cluster, and Token --initial-cluster-token.
	PeerURL, InitialCluster, Token string
	// DataDir is --data-dir. It must not exist, or be empty.
	DataDir string
}

// Restored tells what was restored.
type Restored struct {
	// Epoch is that of the topology, if the store is the hub's. It is the saved one if the hub encrypts topologies.
	Epoch int64
	// EpochKept is set if the epoch could not be raised.
	EpochKept bool
}

// Restore makes the data directory of a member of an etcd from a store of the set. All members of the etcd are made in this way.
func (s *Set) Restore(ctx context.Context, name string, m Member) (_ Restored, err error) {
	store, err := s.Store(name)
	if err != nil {
		return Restored{}, err
	}
	if err := checkEmpty(m.DataDir); err != nil {
		return Restored{}, err
	}
	// A data directory that is not complete must not look like one.
	scratch := m.DataDir + ".restoring"
	if err := os.RemoveAll(scratch); err != nil {
		return Restored{}, err
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	content := filepath.Join(scratch, "content.db")
	if err := s.copyStore(ctx, store, content); err != nil {
		return Restored{}, err
	}
	restored := Restored{Epoch: s.Epoch}
	if name == Hub {
		if restored, err = s.raiseEpoch(ctx, content); err != nil {
			return Restored{}, err
		}
	}
	made := filepath.Join(scratch, "data")
	if err := etcdsnapshot.NewV3(zap.NewNop()).Restore(etcdsnapshot.RestoreConfig{
		SnapshotPath: content, SkipHashCheck: true, // it was checked when it was copied
		Name: m.Name, PeerURLs: []string{m.PeerURL}, InitialCluster: m.InitialCluster, InitialClusterToken: m.Token,
		OutputDataDir: made, RevisionBump: revisionsAhead, MarkCompacted: true,
	}); err != nil {
		return Restored{}, fmt.Errorf("restoring the store of %s as member %s: %w", name, m.Name, err)
	}
	if err := os.Chmod(made, 0o700); err != nil {
		return Restored{}, err
	}
	if err := os.Remove(m.DataDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Restored{}, err
	}
	return restored, errors.Join(os.Rename(made, m.DataDir), syncDir(filepath.Dir(m.DataDir)))
}

// checkEmpty fails if there is something in a directory.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: a store is restored into a new directory; move the old one away first", dir)
	default:
		return nil
	}
}

// copyStore copies the file of a store, without the hash at its end, and checks it.
func (s *Set) copyStore(ctx context.Context, store Store, to string) error {
	source, err := os.Open(s.file(store.Name))
	if err != nil {
		return err
	}
	defer source.Close()
	hash := sha256.New()
	if err := writeFile(to, io.TeeReader(&contextReader{ctx, source}, hash)); err != nil {
		return err
	}
	if fmt.Sprintf("%x", hash.Sum(nil)) != store.SHA256 {
		return fmt.Errorf("%s is damaged: it has changed since it was saved", s.file(store.Name))
	}
	return os.Truncate(to, store.Size-sha256.Size)
}

// checkHash compares the hash at the end of a file with its content before.
func checkHash(ctx context.Context, path string, size int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.CopyN(hash, &contextReader{ctx, file}, size-sha256.Size); err != nil {
		return fmt.Errorf("the snapshot is incomplete: %w", err)
	}
	ending, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(ending, hash.Sum(nil)) {
		return errors.New("the snapshot is incomplete: it does not have the hash at its end")
	}
	return nil
}

// raiseEpoch raises the generation of the topology in the file of the hub's store: the epochs after it were in use, with other owners of slots.
func (s *Set) raiseEpoch(ctx context.Context, file string) (Restored, error) {
	db := backend.NewDefaultBackend(zap.NewNop(), file)
	defer db.Close()
	store := mvcc.NewStore(zap.NewNop(), db, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer store.Close()
	key := []byte(s.TopologyKey)
	found, err := store.Range(ctx, key, nil, mvcc.RangeOptions{})
	if err != nil {
		return Restored{}, err
	}
	if len(found.KVs) != 1 {
		return Restored{}, fmt.Errorf("the store of the hub has no key %s", key)
	}
	value, raised, err := withEpoch(found.KVs[0].Value, s.Epoch+epochsAhead)
	if err != nil {
		return Restored{}, err
	}
	if !raised {
		return Restored{Epoch: s.Epoch, EpochKept: true}, nil
	}
	write := store.Write(traceutil.TODO())
	write.Put(key, value, lease.NoLease)
	write.End()
	store.Commit()
	return Restored{Epoch: s.Epoch + epochsAhead}, nil
}

// withEpoch returns a stored topology with another generation, and false if it is encrypted.
func withEpoch(stored []byte, epoch int64) (value []byte, raised bool, err error) {
	if !bytes.HasPrefix(stored, []byte("{")) {
		return nil, false, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.UseNumber()
	var topology map[string]any
	if err := decoder.Decode(&topology); err != nil {
		return nil, false, fmt.Errorf("reading the topology: %w", err)
	}
	metadata, ok := topology["metadata"].(map[string]any)
	if !ok {
		return nil, false, errors.New("reading the topology: it has no metadata")
	}
	metadata["generation"] = epoch
	value, err = json.Marshal(topology)
	return value, true, err
}
