// Package gobin builds programs of other Go modules with the Go tool, once per set of pinned versions, in the user's cache directory.
package gobin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program and how it is built.
type Program struct {
	Name    string // of its file
	Package string
	Version string // for messages
	LDFlags []string
	Tags    []string
	// CGo needs a C compiler.
	CGo bool
}

// Set is programs that are built together, in one module that pins their versions.
type Set struct {
	// Title names the programs in messages, such as "Kubernetes".
	Title string
	// Cache is the beginning of the name of the directory with the programs, below that of Cellplane in the user's cache.
	Cache string
	// Files are those of the module: go.mod, go.sum, and sources if it has any.
	Files    map[string][]byte
	Programs []Program
	// Given is a variable of the environment with a directory of prebuilt programs, if there may be one.
	Given string
	// Background builds at a low priority.
	Background bool
}

// Binaries is a directory with all programs of a set.
type Binaries struct{ Dir string }

// Path returns the executable of a program.
func (b Binaries) Path(name string) string { return filepath.Join(b.Dir, name) }

// Progress is called with the program being built and the number of compiled packages.
type Progress func(what string, packages int)

// Ensure returns the programs and builds them if they are not cached. Concurrent builds wait for each other.
func (s *Set) Ensure(ctx context.Context, progress Progress) (Binaries, error) {
	if s.Given != "" {
		if dir := os.Getenv(s.Given); dir != "" {
			return s.given(dir)
		}
	}
	dir, err := s.cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	if complete(dir) {
		return Binaries{Dir: dir}, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Binaries{}, fmt.Errorf("creating the cache for programs of %s: %w", s.Title, err)
	}
	unlock, err := Lock(ctx, dir+".lock", s.Title, progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if complete(dir) { // another build has just finished
		return Binaries{Dir: dir}, nil
	}
	if err := s.build(ctx, dir, progress); err != nil {
		return Binaries{}, err
	}
	return Binaries{Dir: dir}, nil
}

// Built reports whether Ensure would return without a build.
func (s *Set) Built() bool {
	if s.Given != "" && os.Getenv(s.Given) != "" {
		return true
	}
	dir, err := s.cacheDir()
	return err == nil && complete(dir)
}

func (s *Set) given(dir string) (Binaries, error) {
	for _, p := range s.Programs {
		if _, err := exec.LookPath(filepath.Join(dir, p.Name)); err != nil {
			return Binaries{}, fmt.Errorf("%s=%s has no program %s", s.Given, dir, p.Name)
		}
	}
	return Binaries{Dir: dir}, nil
}

// cacheDir returns the directory for these files, flags, Go version and platform.
func (s *Set) cacheDir() (string, error) {
	cache, err := os.UserCacheDir() // XDG_CACHE_HOME on Unix
	if err != nil {
		err = fmt.Errorf("finding a cache directory for programs of %s: %w; set HOME or XDG_CACHE_HOME", s.Title, err)
		if s.Given != "" {
			err = fmt.Errorf("%w, or %s", err, s.Given)
		}
		return "", err
	}
	k := key{sha256.New()}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		k.add([]byte(name))
		k.add(s.Files[name])
	}
	k.addPlatform()
	for _, p := range s.Programs {
		fmt.Fprintln(k, p.Name, p.Package, p.LDFlags, p.Tags, p.CGo)
	}
	return filepath.Join(cache, "cellplane", s.Cache+"-"+k.String()[:12]), nil
}

// Key returns a text that depends on the parts, on the Go version and on the platform, to find what was made from them.
func Key(parts ...[]byte) string {
	k := key{sha256.New()}
	for _, part := range parts {
		k.add(part)
	}
	k.addPlatform()
	return k.String()
}

type key struct{ hash.Hash }

func (k key) add(part []byte) {
	fmt.Fprintf(k, "%d\n", len(part))
	k.Write(part)
}

func (k key) addPlatform() {
	k.add([]byte(runtime.Version()))
	k.add([]byte(runtime.GOOS + "/" + runtime.GOARCH))
}

func (k key) String() string { return hex.EncodeToString(k.Sum(nil)) }

// complete reports whether the directory exists. It is created by a rename after all programs are built.
func complete(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// Lock acquires the lock of a build, whose title is for messages. The function unlocks it.
func Lock(ctx context.Context, path, title string, progress Progress) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the build of %s: %w", title, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return func() { f.Close() }, nil
	}
	progress("another build of "+title+" to finish", 0)
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking the build of %s: %w", title, err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { <-locked; f.Close() }()
		return nil, ctx.Err()
	}
}

// build builds all programs in a scratch directory and renames it to dir.
func (s *Set) build(ctx context.Context, dir string, progress Progress) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		err := fmt.Errorf("the Go tool is needed to build %s: install Go", s.Title)
		if s.Given != "" {
			err = fmt.Errorf("%w, or set %s to a directory with prebuilt programs", err, s.Given)
		}
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return fmt.Errorf("building %s: %w", s.Title, err)
	}
	defer os.RemoveAll(scratch)
	module, out := filepath.Join(scratch, "module"), filepath.Join(scratch, "bin")
	errs := []error{os.Mkdir(module, 0o755), os.Mkdir(out, 0o755)}
	for name, content := range s.Files {
		errs = append(errs, os.MkdirAll(filepath.Dir(filepath.Join(module, name)), 0o755), os.WriteFile(filepath.Join(module, name), content, 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("building %s: %w", s.Title, err)
	}
	packages := 0
	for _, p := range s.Programs {
		what := p.Name + " " + p.Version
		progress(what, packages)
		cmd := s.command(ctx, goTool, "build", "-v", "-mod=mod", "-buildvcs=false", "-tags", strings.Join(p.Tags, ","),
			"-ldflags", strings.Join(p.LDFlags, " "), "-o", filepath.Join(out, p.Name), p.Package)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if p.CGo {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
		if err := runCounting(cmd, func() { packages++; progress(what, packages) }); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("building %s: %w", what, err)
		}
	}
	return os.Rename(out, dir)
}

// niceness is the priority of builds in the background.
const niceness = "10"

// command returns a command that ends with all of its children when the context does.
func (s *Set) command(ctx context.Context, args ...string) *exec.Cmd {
	if nice, err := exec.LookPath("nice"); s.Background && err == nil {
		args = append([]string{nice, "-n", niceness}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	return cmd
}

// runCounting runs `go build -v`, which prints a line per compiled package. The error of a failure has the last other lines.
func runCounting(cmd *exec.Cmd, compiled func()) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var last []string
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.ContainsAny(line, " :") {
			compiled()
			continue
		}
		if last = append(last, string(line)); len(last) > 10 {
			last = last[1:]
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n  %s", err, strings.Join(last, "\n  "))
	}
	return nil
}
