// Package agent tests a member in pull mode: its agent, with the rights it has, while cells come and go.
package agent

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	_ "github.com/cellplane/cellplane/internal/cli" // the program under test is built from it, so a change must invalidate cached test results
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// federation has a member that is pushed to, whose agent only reports metrics, as it does by default, and one that pulls. All periods are short.
const federation = `
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
cells: 2
members: 2
nodes: 1
pull: 1
metricsServer: false
fsync: false
parts:
  hub-manager: {flags: {cluster-monitor-period: 200ms, cluster-monitor-grace-period: 4s}}
  engine: {flags: {horizontal-pod-autoscaler-sync-period: 1s}}
  cluster-gateway: {flags: {metrics-stale-after: 5s}}
  agent: {flags: {cluster-status-update-frequency: 500ms, cluster-success-threshold: 500ms, cluster-lease-duration: 2s, workload-metrics-interval: 500ms}}
`

// The members.
const (
	pushed = "member1"
	pulled = "member2"
)

// world is a federation with an agent.
type world struct {
	*testing.T
	dir        string
	supervisor *local.Client
	gateway    client.Client
	hub        client.Client
	member     client.Client // the pulled one
	other      client.Client // the pushed one
}

func newWorld(t *testing.T) *world {
	testenv.Binaries(t) // build them before anything is timed
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation")}
	t.Cleanup(func() { _ = w.command(context.Background(), "down", "--purge").Run() })
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(federation), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("up", "--config", config, "--skip-checks")
	var err error
	if w.supervisor, err = local.NewClient(w.dir); err != nil {
		t.Fatal(err)
	}
	w.gateway, w.hub, w.member, w.other = w.client("cellplane"), w.client("hub"), w.client(pulled), w.client(pushed)
	return w
}

// config reads a context of a kubeconfig; "" is the current one.
func (w *world) config(file, name string) *rest.Config {
	w.Helper()
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		w.Fatal(err)
	}
	config.QPS = -1
	return config
}

// kubeconfig writes a kubeconfig with one context, and returns its path.
func (w *world) kubeconfig(name string) string {
	w.Helper()
	config, err := clientcmd.LoadFromFile(local.KubeconfigFile(w.dir))
	if err != nil {
		w.Fatal(err)
	}
	config.CurrentContext = name
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		w.Fatal(err)
	}
	file := filepath.Join(w.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		w.Fatal(err)
	}
	return file
}

func (w *world) client(name string) client.Client {
	w.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			w.Fatal(err)
		}
	}
	c, err := client.New(w.config(local.KubeconfigFile(w.dir), name), client.Options{Scheme: scheme})
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

// signalAgent halts or restarts the agent.
func (w *world) signalAgent(action string) {
	w.Helper()
	if err := w.supervisor.Signal(w.Context(), pulled+"/agent", action); err != nil {
		w.Fatal(err)
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

// untilGone waits until an object does not exist.
func (w *world) untilGone(what string, in client.Client, object client.Object) {
	w.Helper()
	began := time.Now()
	testenv.Eventually(w, what, func(ctx context.Context) (bool, error) {
		err := in.Get(ctx, client.ObjectKeyFromObject(object), object)
		return client.IgnoreNotFound(err) == nil && err != nil, err
	})
	w.Logf("%6.1fs  %s", time.Since(began).Seconds(), what)
}

// change changes an object through the gateway.
func change[T client.Object](w *world, object T, edit func(T)) {
	w.Helper()
	testenv.Eventually(w, "it is changed", func(ctx context.Context) (bool, error) {
		if err := w.gateway.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		edit(object)
		err := w.gateway.Update(ctx, object)
		return err == nil, err
	})
}

func image(tag string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "nginx:" + tag }
}

func has(tag string) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image == "nginx:"+tag }
}
