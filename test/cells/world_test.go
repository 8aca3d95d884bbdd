// Package cells tests how the cells of a federation come, go and die while people use it: by the command line, with real members.
package cells

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/api/names"
	_ "github.com/cellplane/cellplane/internal/cli" // the program is built from it: a result of another one must not be taken from the cache
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// world is a federation with two cells and two members, and those who use it.
type world struct {
	*testing.T
	dir        string
	supervisor *local.Client
	gateway    kubernetes.Interface
	hub        kubernetes.Interface
	config     *rest.Config // of the gateway
	members    []kubernetes.Interface

	before map[string]string // what is in the members, by name, with its UID
	users
}

func newWorld(t *testing.T) *world {
	testenv.Binaries(t) // built before the clock runs
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation")}
	t.Cleanup(func() { _ = w.command(context.Background(), "down", "--purge").Run() })
	w.run("up", "--cells", "2", "--members", "2", "--nodes", "2", "--skip-checks")
	var err error
	if w.supervisor, err = local.NewClient(w.dir); err != nil {
		t.Fatal(err)
	}
	w.config = w.context("cellplane")
	w.gateway = kubernetes.NewForConfigOrDie(w.config)
	w.hub = kubernetes.NewForConfigOrDie(w.context("hub"))
	for i := range 2 {
		w.members = append(w.members, kubernetes.NewForConfigOrDie(w.context(fmt.Sprintf("member%d", i+1))))
	}
	return w
}

func (w *world) context(name string) *rest.Config {
	w.Helper()
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: local.KubeconfigFile(w.dir)}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		w.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cellplane, args...)
	cmd.Env = append(os.Environ(), "CELLPLANE_DIR="+w.dir)
	return cmd
}

// took tells, when it is called, how long something has taken: whoever looks at a slow run needs to know what was slow.
func (w *world) took(what string) func() {
	begun := time.Now()
	return func() { w.Logf("%6.1fs  %s", time.Since(begun).Seconds(), what) }
}

// run expects success and returns what was printed.
func (w *world) run(args ...string) string {
	w.Helper()
	defer w.took(strings.Join(args, " "))()
	output, err := w.command(w.Context(), args...).CombinedOutput()
	if err != nil {
		w.Fatalf("cellplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// changeWithin bounds a change; on a busy machine it takes seconds.
const changeWithin = 4 * time.Minute

// completes runs a command that follows a change to its end, and returns what was printed.
func (w *world) completes(args ...string) string {
	w.Helper()
	defer w.took(strings.Join(args, " "))()
	ctx, cancel := context.WithTimeout(w.Context(), changeWithin)
	defer cancel()
	output, err := w.command(ctx, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(output), "Done: epoch") {
		state, _ := w.command(w.Context(), "kubectl", "--context", "hub", "get", "celltopologies,cells", "-o", "yaml").CombinedOutput()
		w.Fatalf("cellplane %s: %v\n%s\n%s", strings.Join(args, " "), err, output, state)
	}
	return string(output)
}

// refused expects failure with one sentence that holds the given words.
func (w *world) refused(words string, args ...string) {
	w.Helper()
	defer w.took(strings.Join(args, " "))()
	var stderr bytes.Buffer
	cmd := w.command(w.Context(), args...)
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(stderr.String(), words) {
		w.Errorf("cellplane %s: %v, says %q, want %q", strings.Join(args, " "), err, stderr.String(), words)
	}
}

// signal does something to all processes whose names have a prefix.
func (w *world) signal(prefix, action string) {
	w.Helper()
	defer w.took(action + " " + prefix)()
	report, err := w.supervisor.ReportWithProcesses(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range report.Processes {
		if !strings.HasPrefix(p.Name, prefix) {
			continue
		}
		if err := w.supervisor.Signal(w.Context(), p.Name, action); err != nil {
			w.Fatalf("%s %s: %v", action, p.Name, err)
		}
	}
}

// checkStores runs the checker.
func (w *world) checkStores() {
	w.Helper()
	defer w.took("cells verify")()
	output, err := w.command(w.Context(), "cells", "verify", "--settle", "60s").CombinedOutput()
	if err != nil {
		w.Errorf("the stores are not as they should be: %v\n%s", err, output)
	}
}

// settleBackup waits until the backup has everything.
func (w *world) settleBackup() {
	w.Helper()
	w.run("cells", "verify", "--settle", "60s")
}

// gatewayKnows waits until the gateway routes by the topology of the hub.
func (w *world) gatewayKnows() {
	w.Helper()
	defer w.took("the gateway learns of the topology")()
	epoch := fmt.Sprint(w.topology(w.Context()).Generation)
	testenv.Eventually(w, "the gateway routes by epoch "+epoch, func(ctx context.Context) (bool, error) {
		metrics, err := w.ofGateway(ctx)
		return strings.Contains(string(metrics), "\ncellplane_gateway_topology_epoch "+epoch+"\n"), err
	})
}

// killHubManager kills the hub manager, and gives its lease up in its place: nobody has to wait until it is sure to be dead.
func (w *world) killHubManager() {
	w.Helper()
	w.signal("hub-manager", "halt")
	w.releaseLease()
}

func (w *world) releaseLease() {
	w.Helper()
	err := w.hub.CoordinationV1().Leases(names.SystemNamespace).Delete(w.Context(), manager.LeaseName, metav1.DeleteOptions{})
	if err != nil {
		w.Fatalf("giving up the lease of the hub manager: %v", err)
	}
}

// atOnce does several things at once that only tell of errors.
func atOnce(do ...func()) {
	var group sync.WaitGroup
	for _, f := range do {
		group.Go(f)
	}
	group.Wait()
}
