package kubebin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the pins
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
	"golang.org/x/sys/unix"
)

// The file names of the programs.
const (
	Etcd                  = "etcd"
	KubeAPIServer         = "kube-apiserver"
	KubeControllerManager = "kube-controller-manager"
	KubeScheduler         = "kube-scheduler"
	Kwok                  = "kwok"
)

// DirEnv is the environment variable with a directory of prebuilt programs.
const DirEnv = "CELLPLANE_KUBE_BIN"

var (
	//go:embed pin/go.mod.txt
	pinnedMod []byte
	//go:embed pin/go.sum.txt
	pinnedSum []byte
)

// program is a program, its package, and the module with its version.
type program struct{ name, pkg, module string }

var programs = []program{
	{Etcd, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"},
	{KubeAPIServer, "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes"},
	{KubeControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes"},
	{KubeScheduler, "k8s.io/kubernetes/cmd/kube-scheduler", "k8s.io/kubernetes"},
	{Kwok, "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"},
}

// Binaries is a directory with all programs.
type Binaries struct{ Dir string }

// Path returns the executable of a program.
func (b Binaries) Path(name string) string { return filepath.Join(b.Dir, name) }

// Progress is called with the program being built and the number of compiled packages.
type Progress func(what string, packages int)

// Ensure returns the programs and builds them if they are not cached. Concurrent builds wait for each other.
func Ensure(ctx context.Context, progress Progress) (Binaries, error) {
	if dir := os.Getenv(DirEnv); dir != "" {
		return givenBinaries(dir)
	}
	dir, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	if complete(dir) {
		return Binaries{Dir: dir}, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Binaries{}, fmt.Errorf("creating the cache for Kubernetes programs: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", progress)
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if complete(dir) { // another build has just finished
		return Binaries{Dir: dir}, nil
	}
	if err := build(ctx, dir, progress); err != nil {
		return Binaries{}, err
	}
	return Binaries{Dir: dir}, nil
}

func givenBinaries(dir string) (Binaries, error) {
	for _, p := range programs {
		if _, err := exec.LookPath(filepath.Join(dir, p.name)); err != nil {
			return Binaries{}, fmt.Errorf("%s=%s has no program %s", DirEnv, dir, p.name)
		}
	}
	return Binaries{Dir: dir}, nil
}

// Version returns the pinned Kubernetes version, for example v1.36.3.
func Version() string { return version("k8s.io/kubernetes") }

func version(module string) string {
	for _, r := range pins().Require {
		if r.Mod.Path == module {
			return r.Mod.Version
		}
	}
	panic("kubebin: the pins lack " + module)
}

func pins() *modfile.File {
	f, err := modfile.Parse("kube/go.mod", pinnedMod, nil)
	if err != nil {
		panic(err) // the file is embedded and tested
	}
	return f
}

// cacheDir returns the directory for these pins, linker flags, Go version and platform.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir() // XDG_CACHE_HOME on Unix
	if err != nil {
		return "", fmt.Errorf("finding a cache directory for Kubernetes programs: %w; set HOME, XDG_CACHE_HOME or %s", err, DirEnv)
	}
	h := sha256.New()
	for _, part := range [][]byte{pinnedMod, pinnedSum, []byte(runtime.Version()), []byte(runtime.GOOS + "/" + runtime.GOARCH)} {
		fmt.Fprintf(h, "%d\n", len(part))
		h.Write(part)
	}
	for _, p := range programs {
		fmt.Fprintln(h, p.pkg, strings.Join(ldflags(p), " "))
	}
	key := hex.EncodeToString(h.Sum(nil))[:12]
	return filepath.Join(cache, "cellplane", "kube", Version()+"-"+key), nil
}

// complete reports whether the directory exists. It is created by a rename after all programs are built.
func complete(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// lock acquires the build lock.
func lock(ctx context.Context, path string, progress Progress) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the build of Kubernetes: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return func() { f.Close() }, nil
	}
	progress("another build of Kubernetes to finish", 0)
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("locking the build of Kubernetes: %w", err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { <-locked; f.Close() }()
		return nil, ctx.Err()
	}
}

// build builds all programs in a scratch directory and renames it to dir.
func build(ctx context.Context, dir string, progress Progress) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the Go tool is needed to build Kubernetes %s: install Go, or set %s to a directory with prebuilt programs", Version(), DirEnv)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	defer os.RemoveAll(scratch)
	module, out := filepath.Join(scratch, "module"), filepath.Join(scratch, "bin")
	if err := errors.Join(
		os.Mkdir(module, 0o755),
		os.Mkdir(out, 0o755),
		os.WriteFile(filepath.Join(module, "go.mod"), pinnedMod, 0o644),
		os.WriteFile(filepath.Join(module, "go.sum"), pinnedSum, 0o644),
	); err != nil {
		return fmt.Errorf("building Kubernetes: %w", err)
	}
	packages := 0
	for _, p := range programs {
		what := fmt.Sprintf("%s %s", p.name, version(p.module))
		progress(what, packages)
		args := []string{"build", "-v", "-mod=mod", "-buildvcs=false", "-ldflags", strings.Join(ldflags(p), " "), "-o", filepath.Join(out, p.name), p.pkg}
		cmd := exec.CommandContext(ctx, goTool, args...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
		if err := runCounting(cmd, func() { packages++; progress(what, packages) }); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("building %s: %w", what, err)
		}
	}
	return os.Rename(out, dir)
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

// ldflags returns linker flags that strip a program and stamp its version.
func ldflags(p program) []string {
	flags := []string{"-s", "-w"}
	v := version(p.module)
	switch p.module {
	case "k8s.io/kubernetes":
		major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(v), "v"), ".")
		for _, stamp := range []string{"gitVersion=" + v, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X", "k8s.io/component-base/version."+stamp)
		}
	case "sigs.k8s.io/kwok":
		flags = append(flags, "-X", "sigs.k8s.io/kwok/pkg/consts.Version="+v)
	}
	return flags
}

// Source is how a program is built in a module with the pins.
type Source struct {
	Package string
	Version string // of the module of the package
	LDFlags []string
}

// SourceOf returns how a program is built, for builds other than those of Ensure.
func SourceOf(name string) (Source, error) {
	for _, p := range programs {
		if p.name == name {
			return Source{Package: p.pkg, Version: version(p.module), LDFlags: ldflags(p)}, nil
		}
	}
	return Source{}, fmt.Errorf("there is no pinned program %q", name)
}
