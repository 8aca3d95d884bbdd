package realnode

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/gobin"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
)

// Outside is where something is made outside of the enclosure, with the network and the caches of the user.
type Outside struct {
	// Root is the directory of this repository, and Dir one for files that is removed after the tests.
	Root, Dir string
	Progress  gobin.Progress
}

// Prepare makes something outside, and returns data for the tests.
type Prepare func(ctx context.Context, o Outside) (map[string]string, error)

// buildOnly is for a step before the tests, which has a time limit and an output of its own.
var buildOnly = flag.Bool("node.build", false, "run no tests on a real node, but build what they need")

// Main is the TestMain of packages whose tests need a real node. It runs them in an enclosure. On a machine that lacks something for it, it says so and
// succeeds, unless CELLPLANE_TEST_NODE is set.
func Main(m *testing.M, prepare ...Prepare) {
	if enclosure.Inside() != nil {
		os.Exit(m.Run())
	}
	flag.Parse()
	if !*buildOnly && !wanted() {
		os.Exit(m.Run())
	}
	options := enclosure.Options{
		// On a disk of their own: containers need a file system that overlays can have.
		Private: []string{"/var/lib/kubelet", "/var/lib/containerd"},
		// What the kubelet sets.
		Kept: []string{
			"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
			"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes",
		},
		Hostname: name,
		Prepare:  func(ctx context.Context, dir string) (map[string]string, error) { return build(ctx, dir, prepare) },
	}
	if missing := missing(options); len(missing) > 0 {
		fmt.Println("Tests on a real node do not run: this machine lacks", strings.Join(missing, ", "))
		if os.Getenv(enclosure.RequiredEnv) != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if *buildOnly {
		if err := onlyBuild(prepare); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, err := enclosure.Run(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// wanted reports whether tests are to run: not if they are only listed, and not if none has the name that is wanted.
func wanted() bool {
	value := func(name string) string { return flag.Lookup("test." + name).Value.String() }
	pattern := value("run")
	switch {
	case value("list") != "":
		return false
	case pattern == "", strings.Contains(pattern, "/"), value("bench") != "":
		return true
	}
	self, err := os.Executable()
	if err != nil {
		return true
	}
	list, err := exec.Command(self, "-test.list="+pattern).Output()
	return err != nil || len(bytes.TrimSpace(list)) > 0
}

// missing returns what this machine lacks for a real node, in words, or nothing.
func missing(options enclosure.Options) []string {
	missing := enclosure.Missing(options)
	if _, err := exec.LookPath("iptables"); err != nil {
		missing = append(missing, "the program iptables")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		missing = append(missing, "the program gcc")
	} else if err := linkStatic(); err != nil {
		missing = append(missing, "a static C library for gcc (package libc6-dev)")
	}
	return missing
}

// linkStatic tries what the build of runc does.
func linkStatic() error {
	dir, err := os.MkdirTemp("", "cellplane-static-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	command := exec.Command("gcc", "-static", "-o", filepath.Join(dir, "program"), "-x", "c", "-")
	command.Stdin = strings.NewReader("#include <stdlib.h>\nint main(void) { return 0; }\n")
	return command.Run()
}

// KubeData is the key of the directory with the programs of control planes in the data of the enclosure.
const KubeData = "kube"

// The keys of other directories.
const (
	nodeData    = "node"
	runtimeData = "runtime"
	rootData    = "root"
)

func onlyBuild(prepare []Prepare) error {
	dir, err := os.MkdirTemp("", "cellplane-node-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	_, err = build(ctx, dir, prepare)
	return err
}

// build makes all that the tests need.
func build(ctx context.Context, dir string, prepare []Prepare) (map[string]string, error) {
	root, err := moduleDir(ctx)
	if err != nil {
		return nil, err
	}
	o := Outside{Root: root, Dir: dir, Progress: progress()}
	data, err := o.programs(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range prepare {
		more, err := p(ctx, o)
		if err != nil {
			return nil, err
		}
		maps.Copy(data, more)
	}
	data[rootData] = root
	return data, nil
}

// progress prints a line for each program that is built.
func progress() gobin.Progress {
	began, last := time.Now(), ""
	return func(what string, _ int) {
		if what != last {
			fmt.Printf("After %.0fs, this waits for %s.\n", time.Since(began).Seconds(), what)
			last = what
		}
	}
}

// programs builds all programs.
func (o *Outside) programs(ctx context.Context) (map[string]string, error) {
	kube, err := kubebin.Ensure(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	node, err := kubebin.EnsureNode(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	set, err := programs(o.Root)
	if err != nil {
		return nil, err
	}
	runtime, err := set.Ensure(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	return map[string]string{KubeData: kube.Dir, nodeData: node.Dir, runtimeData: runtime.Dir}, nil
}
