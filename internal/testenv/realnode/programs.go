package realnode

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/cellplane/cellplane/internal/gobin"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
)

// The file names of programs.
const (
	containerd = "containerd"
	shim       = "containerd-shim-runc-v2"
	ctr        = "ctr"
	runc       = "runc"
	wrapper    = "runc-without-seccomp"
	coredns    = "coredns"
	toolbox    = "toolbox"
)

// networkPlugins are those of CNI.
var networkPlugins = map[string]string{"ptp": "main", "loopback": "main", "host-local": "ipam"}

// programsDir is the directory of their module.
const programsDir = "internal/testenv/realnode/programs"

// programs returns what runs containers, from the module in the folder programs.
func programs(root string) (*gobin.Set, error) {
	files, err := sources(filepath.Join(root, programsDir))
	if err != nil {
		return nil, err
	}
	pins, err := modfile.Parse("go.mod", files["go.mod"], nil)
	if err != nil {
		return nil, err
	}
	version := func(module string) string {
		for _, r := range pins.Require {
			if r.Mod.Path == module {
				return r.Mod.Version
			}
		}
		return ""
	}
	set := &gobin.Set{Title: "a container runtime", Cache: "node/runtime", Files: files}
	add := func(module, pkg string, p gobin.Program) {
		p.Package, p.Version = module+pkg, version(module)
		p.LDFlags = append([]string{"-s", "-w"}, p.LDFlags...)
		set.Programs = append(set.Programs, p)
	}
	for _, name := range []string{containerd, shim, ctr} {
		add("github.com/containerd/containerd/v2", "/cmd/"+name, gobin.Program{Name: name, Tags: []string{"no_btrfs", "no_devmapper", "no_zfs", "no_aufs"}})
	}
	// Without C, runc cannot enter namespaces.
	add("github.com/opencontainers/runc", "", gobin.Program{Name: runc, CGo: true, Tags: []string{"netgo", "osusergo"}, LDFlags: []string{"-extldflags", "-static"}})
	for _, name := range []string{"host-local", "loopback", "ptp"} {
		add("github.com/containernetworking/plugins", "/plugins/"+networkPlugins[name]+"/"+name, gobin.Program{Name: name})
	}
	for _, name := range []string{wrapper, coredns, toolbox} {
		add(pins.Module.Mod.Path, "/"+name, gobin.Program{Name: name})
	}
	return set, nil
}

// moduleDir returns the directory of this repository.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// DependOn lets the test run again, and not show a cached result, after a file in a directory of this repository has changed from which something was made
// outside: the go command remembers which files a test has looked at.
func DependOn(dirs ...string) error {
	root := os.DirFS(enclosure.Inside().Data[rootData])
	for _, dir := range dirs {
		err := fs.WalkDir(root, dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = fs.Stat(root, path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("looking at the files in %s: %w", dir, err)
		}
	}
	return nil
}

// sources returns all files of a directory.
func sources(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[path], err = os.ReadFile(filepath.Join(dir, path))
		return err
	})
	return files, err
}
