// Package keep stores the files that a gateway needs to start while the hub is down.
//
// Files are replaced atomically. Only the gateway's user may read them, because some contain credentials.
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

// HubTimeout is how long the hub must be unreachable after a start before kept values are used: a right that was revoked while the gateway
// was down must not return while the hub answers.
const HubTimeout = 3 * time.Second

// Write replaces a file atomically.
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
		_ = os.Remove(file.Name()) // the first error is returned
	}
	return err
}

// Value is a value that is kept as JSON.
type Value[T any] struct {
	path    string
	started time.Time

	once sync.Once
	kept *T
}

// NewValue returns a value in a file of a directory. With an empty directory nothing is kept.
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
		return fmt.Errorf("encoding %s: %w", v.path, err)
	}
	return Write(v.path, data)
}

// Kept returns the value from before the start; nil if there is none, or if the hub may still answer.
func (v *Value[T]) Kept() *T {
	if v.path == "" || time.Since(v.started) < HubTimeout {
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
			klog.Background().Error(err, "reading the kept state failed, waiting for the hub", "file", v.path)
			return
		}
		klog.Background().Info("the hub is unreachable, using the kept state", "file", v.path)
		v.kept = value
	})
	return v.kept
}
