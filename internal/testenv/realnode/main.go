package realnode

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv/enclosure"
)

// Prepare makes something in a directory that needs the network or the caches outside, and returns data for the tests.
type Prepare func(ctx context.Context, dir string) (map[string]string, error)

// Main is the TestMain of packages whose tests need a real node. It runs them in an enclosure. On a machine that lacks something for it, it says so and
// succeeds, unless CELLPLANE_TEST_NODE is set.
func Main(m *testing.M, prepare ...Prepare) {
	if enclosure.Inside() != nil {
		os.Exit(m.Run())
	}
	if missing := Missing(); len(missing) > 0 {
		fmt.Println("Tests on a real node do not run: this machine lacks", strings.Join(missing, ", "))
		if os.Getenv(enclosure.RequiredEnv) != "" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, err := outside(prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Missing returns what this machine lacks for a real node, in words, or nothing.
func Missing() []string {
	missing := enclosure.Missing()
	for _, program := range []string{"gcc", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, "the program "+program)
		}
	}
	return missing
}

// KubeData is the key of the directory with the programs of control planes in the data of the enclosure.
const KubeData = "kube"

// The keys of directories with other programs.
const (
	nodeData    = "node"
	runtimeData = "runtime"
)

func outside(prepare []Prepare) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	all := func(dir string) (map[string]string, error) {
		data, err := build(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range prepare {
			more, err := p(ctx, dir)
			if err != nil {
				return nil, err
			}
			maps.Copy(data, more)
		}
		stop() // from now on, a signal ends the program outside, and with it everything
		return data, nil
	}
	return enclosure.Run(enclosure.Options{
		// On a disk of their own: containers need a file system that overlays can have.
		Private: []string{"/var/lib/kubelet", "/var/lib/containerd"},
		// What the kubelet sets.
		Kept: []string{
			"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops",
			"/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes",
		},
		Hostname: name,
		Prepare:  all,
	})
}

// build builds all programs.
func build(ctx context.Context) (map[string]string, error) {
	progress := func(string, int) {}
	kube, err := kubebin.Ensure(ctx, progress)
	if err != nil {
		return nil, err
	}
	node, err := kubebin.EnsureNode(ctx, progress)
	if err != nil {
		return nil, err
	}
	set, err := programs(ctx)
	if err != nil {
		return nil, err
	}
	runtime, err := set.Ensure(ctx, progress)
	if err != nil {
		return nil, err
	}
	return map[string]string{KubeData: kube.Dir, nodeData: node.Dir, runtimeData: runtime.Dir}, nil
}
