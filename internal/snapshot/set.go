package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Hub is the name of the hub's store. No cell has it.
const Hub = "hub"

const (
	// format is that of sets. Others are refused.
	format = 1
	// indexFile describes the set in its directory.
	indexFile = "set.json"
	// hidden begins the names of directories that are not complete sets.
	hidden = "."
)

// Set is a set of stores in a directory.
type Set struct {
	// Dir is the directory.
	Dir    string    `json:"-"`
	Format int       `json:"format"`
	Time   time.Time `json:"time"`
	// Epoch is that of the topology.
	Epoch int64 `json:"epoch"`
	// TopologyKey is the key of the topology in the store of the hub.
	TopologyKey string  `json:"topologyKey"`
	Stores      []Store `json:"stores"`
}

// Store is the store of the hub or of a cell in a set.
type Store struct {
	Name string `json:"name"`
	// Revision is that of the store, and Keys is how many keys it has.
	Revision int64 `json:"revision"`
	Keys     int   `json:"keys"`
	// Size and SHA256 are those of the file.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Name returns the name of the set, which is that of its directory.
func (s *Set) Name() string { return filepath.Base(s.Dir) }

// Size returns the size of all files.
func (s *Set) Size() (bytes int64) {
	for _, store := range s.Stores {
		bytes += store.Size
	}
	return bytes
}

// Store returns a store of the set.
func (s *Set) Store(name string) (Store, error) {
	i := slices.IndexFunc(s.Stores, func(store Store) bool { return store.Name == name })
	if i < 0 {
		return Store{}, fmt.Errorf("the set %s has no store %q, only %s", s.Name(), name, strings.Join(s.Names(), ", "))
	}
	return s.Stores[i], nil
}

// Names returns the names of the stores.
func (s *Set) Names() []string {
	var names []string
	for _, store := range s.Stores {
		names = append(names, store.Name)
	}
	return names
}

func (s *Set) file(store string) string { return filepath.Join(s.Dir, store+".db") }

// Load reads the description of a set.
func Load(dir string) (*Set, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a set of snapshots: it has no file %s", dir, indexFile)
	}
	if err != nil {
		return nil, err
	}
	s := &Set{Dir: dir}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, indexFile), err)
	}
	if s.Format != format {
		return nil, fmt.Errorf("the set %s has format %d, and this program reads %d: use the one that saved it", s.Name(), s.Format, format)
	}
	for _, store := range s.Stores {
		if store.Name == "" || store.Name != filepath.Base(store.Name) {
			return nil, fmt.Errorf("%s is damaged: %q is no name of a store", filepath.Join(dir, indexFile), store.Name)
		}
	}
	return s, nil
}

// List returns the complete sets in a directory, oldest first, and what is wrong with directories that look like sets and cannot be read.
func List(dir string) ([]*Set, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var sets []*Set
	var damaged []error
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), hidden) {
			continue
		}
		s, err := Load(filepath.Join(dir, entry.Name()))
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		sets = append(sets, s)
	}
	slices.SortFunc(sets, func(a, b *Set) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Dir, b.Dir)) })
	return sets, errors.Join(damaged...)
}

// Verify reads all files and compares them with the description.
func (s *Set) Verify(ctx context.Context) error {
	for _, store := range s.Stores {
		sum, size, err := digest(ctx, s.file(store.Name))
		if err != nil {
			return err
		}
		if size != store.Size || sum != store.SHA256 {
			return fmt.Errorf("%s is damaged: it has changed since it was saved", s.file(store.Name))
		}
	}
	return nil
}

func digest(ctx context.Context, path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, &contextReader{ctx, file})
	return hex.EncodeToString(hash.Sum(nil)), size, err
}

// contextReader reads until the context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// write writes the description.
func (s *Set) write(dir string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, indexFile), &text)
}

// writeFile writes a private file and waits until it is on disk.
func writeFile(path string, content io.Reader) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	return file.Sync()
}

// syncDir waits until the names in a directory are on disk.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}

// Prune removes the oldest sets of a directory, and keeps some. It removes nothing that it cannot read as a set. 0 keeps all.
func Prune(dir string, keep int) (removed []*Set, err error) {
	if keep == 0 {
		return nil, nil
	}
	sets, _ := List(dir) // what is damaged is left for somebody to look at
	for len(sets) > keep {
		// A set that is removed in part must not look complete.
		leaving := filepath.Join(dir, hidden+"removed-"+sets[0].Name())
		if err := errors.Join(os.Rename(sets[0].Dir, leaving), os.RemoveAll(leaving)); err != nil {
			return removed, err
		}
		removed = append(removed, sets[0])
		sets = sets[1:]
	}
	return removed, nil
}
