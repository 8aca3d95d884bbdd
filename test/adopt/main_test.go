// Package adopt tests how running workloads come under the federation and leave it again, through the command line: from
// clusters that nobody manages, and from a Karmada control plane.
package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	_ "github.com/cellplane/cellplane/internal/cli" // makes the test cache depend on the program
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// The tests share a federation.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	w.defineSites() // clusters report their kinds from time to time
	t.Run("Karmada", func(t *testing.T) { testKarmada(w.with(t)) })
	t.Run("Emergency", func(t *testing.T) { testEmergency(w.with(t)) })
	t.Run("Shared", func(t *testing.T) { testShared(w.with(t)) })
	t.Run("Many", func(t *testing.T) { testMany(w.with(t)) })
}

var memberCount = flag.Int("adopt.members", 2, "how many members the federation has, at least two")

// world is a local federation with two cells and some members.
type world struct {
	*testing.T
	dir         string
	memberNames []string
	members     map[string]client.WithWatch
	// federation is a client of the gateway.
	federation client.WithWatch
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.Binaries(t)
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation"), members: map[string]client.WithWatch{}}
	t.Cleanup(func() {
		if output, err := w.command(context.Background(), "down", "--purge").CombinedOutput(); err != nil {
			t.Errorf("cellplane down: %v\n%s", err, output)
		}
	})
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: local.cellplane.io/v1alpha1\nkind: LocalFederation\nmetricsAgents: false\nmetricsServer: false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("up", "--config", config, "--cells", "2", "--members", strconv.Itoa(*memberCount), "--nodes", "4")
	w.federation = w.connect("")
	for i := range *memberCount {
		name := fmt.Sprintf("member%d", i+1)
		w.memberNames = append(w.memberNames, name)
		w.members[name] = w.connect(name)
	}
	return w
}

// with returns the world for another test.
func (w *world) with(t *testing.T) *world {
	other := *w
	other.T = t
	return &other
}

// connect returns a client for a context of the federation's kubeconfig.
func (w *world) connect(name string) client.WithWatch {
	w.Helper()
	return newClient(w.T, w.config(name))
}

// config returns the configuration of a context.
func (w *world) config(name string) *rest.Config {
	w.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(w.dir)}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		w.Fatal(err)
	}
	return config
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	connected, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return connected
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cellplane, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+w.dir)
	return cmd
}

// try runs a command and returns its output and exit code.
func (w *world) try(args ...string) (string, int) {
	w.Helper()
	start := time.Now()
	output, err := w.command(w.Context(), args...).CombinedOutput()
	w.Logf("cellplane %s took %v", strings.Join(args, " "), time.Since(start).Round(time.Millisecond))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return string(output), exit.ExitCode()
	case err != nil:
		w.Fatalf("cellplane %s: %v", strings.Join(args, " "), err)
	}
	return string(output), 0
}

// run runs a command that must succeed and returns its output.
func (w *world) run(args ...string) string {
	w.Helper()
	output, code := w.try(args...)
	if code != 0 {
		w.Fatalf("cellplane %s ends with exit code %d:\n%s", strings.Join(args, " "), code, output)
	}
	return output
}

// report returns the state of the federation's processes.
func (w *world) report() (report local.Report) {
	w.Helper()
	output, _ := w.command(w.Context(), "status", "-o", "json").Output()
	if err := json.Unmarshal(output, &report); err != nil {
		w.Fatalf("status -o json: %v\n%s", err, output)
	}
	return report
}

// pid returns the process of a part, 0 if it does not run.
func (w *world) pid(name string) int {
	w.Helper()
	report := w.report()
	for i := range report.Processes {
		if report.Processes[i].Name == name {
			return report.Processes[i].PID
		}
	}
	return 0
}
