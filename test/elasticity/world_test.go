// Package elasticity tests the chain from what pods use to replicas: simulated nodes, metrics-server, agents, gateway, cluster-gateway, engine.
package elasticity

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	_ "github.com/cellplane/cellplane/internal/cli" // the program under test is built from it, so a change must invalidate cached test results
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// configuration has two members that are pushed to and one that pulls, all with agents. Periods are short, but for that of metrics-server, which accepts no shorter one.
const configuration = `
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
cells: 2
members: 3
nodes: 1
pull: 1
fsync: false
parts:
  engine: {flags: {horizontal-pod-autoscaler-sync-period: 1s}}
  cluster-gateway: {flags: {metrics-stale-after: 5s}}
  agent: {flags: {cluster-status-update-frequency: 500ms, cluster-success-threshold: 500ms, workload-metrics-interval: 500ms}}
`

// pulled is the member in pull mode.
const pulled = "member3"

var members = []string{"member1", "member2", pulled}

// world is a federation.
type world struct {
	*testing.T
	dir        string
	supervisor *local.Client
	gateway    client.Client
	in         map[string]client.Client // the members
}

func newWorld(t *testing.T) *world {
	testenv.Binaries(t) // build them before anything is timed
	testenv.MetricsServer(t)
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation"), in: map[string]client.Client{}}
	t.Cleanup(func() { _ = w.command(context.Background(), "down", "--purge").Run() })
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("up", "--config", config, "--skip-checks")
	var err error
	if w.supervisor, err = local.NewClient(w.dir); err != nil {
		t.Fatal(err)
	}
	w.gateway = w.client("cellplane")
	for _, member := range members {
		w.in[member] = w.client(member)
	}
	return w
}

func (w *world) config(context string) *rest.Config {
	w.Helper()
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(w.dir)}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		w.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (w *world) client(context string) client.Client {
	w.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			w.Fatal(err)
		}
	}
	c, err := client.New(w.config(context), client.Options{Scheme: scheme})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cellplane, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+w.dir)
	return cmd
}

// run runs a command that must succeed, and returns its output.
func (w *world) run(args ...string) string {
	w.Helper()
	began := time.Now()
	output, err := w.command(w.Context(), args...).CombinedOutput()
	if err != nil {
		w.Fatalf("cellplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	w.Logf("%6.1fs  %s", time.Since(began).Seconds(), strings.Join(args, " "))
	return string(output)
}

// signal halts, restarts, pauses or resumes a process.
func (w *world) signal(process, action string) {
	w.Helper()
	if err := w.supervisor.Signal(w.Context(), process, action); err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, object := range objects {
		if err := w.gateway.Create(w.Context(), object); err != nil {
			w.Fatal(err)
		}
	}
}

// until waits until an object fulfils a condition, and returns it.
func until[T client.Object](w *world, what string, in client.Client, object T, done func(T) bool) T {
	w.Helper()
	began := time.Now()
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		err := in.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil && done(object), err
	})
	w.Logf("%6.1fs  %s", time.Since(began).Seconds(), what)
	return object
}
