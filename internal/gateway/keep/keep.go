// Package keep holds on disk what a gateway needs to know when it starts while the hub is down.
//
// Files are replaced as a whole, so that a gateway that dies while it writes one finds the one before, and nobody but its user may read
// them: some hold credentials.
package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Silence is how long the hub has to be silent after a start before what was kept counts: what was taken away while the gateway was
// down must not come back for no reason.
const Silence = 3 * time.Second

// Write replaces a file.
func Write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error says enough
	}
	return err
}

// Value is something that is kept as JSON.
type Value[T any] struct {
	path    string
	started time.Time

	once sync.Once
	kept *T
}

// NewValue returns a value that is kept in a file of a directory; an empty directory keeps nothing.
func NewValue[T any](dir, file string) *Value[T] {
	v := &Value[T]{started: time.Now()}
	if dir != "" {
		v.path = filepath.Join(dir, file)
	}
	return v
}

// Save keeps a value.
func (v *Value[T]) Save(value T) error {
	if v.path == "" {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("keeping %s: %w", v.path, err)
	}
	return Write(v.path, data)
}

// Kept returns what was kept before the start; nil if there is nothing, or the hub may still be heard.
func (v *Value[T]) Kept() *T {
	if v.path == "" || time.Since(v.started) < Silence {
		return nil
	}
	v.once.Do(func() {
		data, err := os.ReadFile(v.path)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		value := new(T)
		if err == nil {
			err = json.Unmarshal(data, value)
		}
		if err != nil {
			klog.Background().Error(err, "What was kept cannot be read; waiting for the hub", "file", v.path)
			return
		}
		klog.Background().Info("The hub is silent; going on with what it said before the start", "file", v.path)
		v.kept = value
	})
	return v.kept
}
