package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cellplane/cellplane/internal/controlplane"
)

// state is saved between runs.
type state struct {
	Spec  Spec                          `json:"spec"`
	Ports map[string]controlplane.Ports `json:"ports"`
	// Settings are those of the last run.
	Settings Settings `json:"settings,omitzero"`
	// Added are the cells that were added later.
	Added []string `json:"added,omitempty"`
	// PartPorts are the ports of Cellplane's own parts.
	PartPorts map[string]int `json:"partPorts,omitempty"`
}

// cellNames returns the cells of the spec and those added later.
func (s state) cellNames() []string { return slices.Concat(s.Spec.cellNames(), s.Added) }

const (
	stateFile  = "federation.json"
	lockFile   = "lock"
	kubeconfig = "kubeconfig"
)

// KubeconfigFile returns the path of the kubeconfig of the federation in dir.
func KubeconfigFile(dir string) string { return filepath.Join(dir, kubeconfig) }

// KeptSpec returns the spec of the federation in dir. ok is false if there is no federation.
func KeptSpec(dir string) (spec Spec, ok bool, err error) {
	s, err := loadState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Spec{}, false, nil
	}
	return s.Spec, err == nil, err
}

func loadState(dir string) (state, error) {
	var s state
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s is damaged (%w); delete the federation with `cellplane down --purge`", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

func (s state) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, stateFile), append(data, '\n'))
}

// replaceFile replaces a private file atomically.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ErrInUse means that a supervisor runs the federation.
var ErrInUse = errors.New("the federation is up already")

// lockDir locks the directory of a federation for this process. The kernel releases the lock when the process ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, ErrInUse
	}
	return f, nil
}

// InUse reports whether a process runs the federation in dir.
func InUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Purge deletes the federation in dir, which must not be in use.
func Purge(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, lockFile)); err != nil {
		return fmt.Errorf("%s holds no federation; nothing was deleted", dir)
	}
	f, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.RemoveAll(dir)
}
