// Package cells tests adding, draining and losing cells with the command line and real members, while users work.
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
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/api/names"
	_ "github.com/cellplane/cellplane/internal/cli" // the program under test is built from it, so a change must invalidate cached test results
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/helmtest"
)

// cellplane is the program under test.
var cellplane string

func TestMain(m *testing.M) { testenv.ProgramMain(m, &cellplane) }

// world is a federation with two cells and two members, and its users.
type world struct {
	*testing.T
	dir        string
	supervisor *local.Client
	gateway    kubernetes.Interface
	slow       kubernetes.Interface // of the gateway, with a limited rate
	hub        kubernetes.Interface
	config     *rest.Config // of the gateway
	helm       *helmtest.Helm
	members    []kubernetes.Interface
	counted    [counterObjects]atomic.Int64 // what was last written, or is being written, into each counter

	before map[string]string // UIDs of the objects in members, by name
	users
}

// federation is the configuration of the federation. The machine does not crash in these tests, so etcd need not flush its writes.
const federation = `
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
cells: 2
members: 2
nodes: 2
metricsAgents: false
metricsServer: false
fsync: false
`

func newWorld(t *testing.T) *world {
	testenv.Binaries(t) // build them before anything is timed
	w := &world{T: t, dir: filepath.Join(t.TempDir(), "federation")}
	w.helm = helmtest.New(t, local.KubeconfigFile(w.dir))
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

// logDuration returns a function that logs the time since the call.
func (w *world) logDuration(what string) func() {
	begun := time.Now()
	return func() { w.Logf("%6.1fs  %s", time.Since(begun).Seconds(), what) }
}

// run runs a command that must succeed, and returns its output.
func (w *world) run(args ...string) string {
	w.Helper()
	defer w.logDuration(strings.Join(args, " "))()
	output, err := w.command(w.Context(), args...).CombinedOutput()
	if err != nil {
		w.Fatalf("cellplane %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// changeWithin bounds a change.
const changeWithin = 4 * time.Minute

// runChange runs a command that waits for the end of a change, and returns its output.
func (w *world) runChange(args ...string) string {
	w.Helper()
	defer w.logDuration(strings.Join(args, " "))()
	ctx, cancel := context.WithTimeout(w.Context(), changeWithin)
	defer cancel()
	output, err := w.command(ctx, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(output), "Done: epoch") {
		state, _ := w.command(w.Context(), "kubectl", "--context", "hub", "get", "celltopologies,cells", "-o", "yaml").CombinedOutput()
		w.Fatalf("cellplane %s: %v\n%s\n%s", strings.Join(args, " "), err, output, state)
	}
	return string(output)
}

// runRefused runs a command that must fail with an error that contains a text.
func (w *world) runRefused(words string, args ...string) {
	w.Helper()
	defer w.logDuration(strings.Join(args, " "))()
	var stderr bytes.Buffer
	cmd := w.command(w.Context(), args...)
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(stderr.String(), words) {
		w.Errorf("cellplane %s: %v, got error %q, want %q", strings.Join(args, " "), err, stderr.String(), words)
	}
}

// signal pauses, resumes, halts or restarts all processes with a name prefix.
func (w *world) signal(prefix, action string) {
	w.Helper()
	defer w.logDuration(action + " " + prefix)()
	if err := w.supervisor.SignalAll(w.Context(), prefix, action); err != nil {
		w.Fatal(err)
	}
}

// checkStores compares all stores.
func (w *world) checkStores() {
	w.Helper()
	defer w.logDuration("cells verify")()
	output, err := w.command(w.Context(), "cells", "verify", "--settle", "60s").CombinedOutput()
	if err != nil {
		w.Errorf("the stores are inconsistent: %v\n%s", err, output)
	}
}

// waitBackupComplete waits until all objects are backed up.
func (w *world) waitBackupComplete() {
	w.Helper()
	w.run("cells", "verify", "--settle", "60s")
}

// waitGatewayTopology waits until the gateway routes by the topology of the hub.
func (w *world) waitGatewayTopology() {
	w.Helper()
	defer w.logDuration("the gateway gets the topology")()
	epoch := fmt.Sprint(w.topology(w.Context()).Generation)
	testenv.Eventually(w, "the gateway routes by epoch "+epoch, func(ctx context.Context) (bool, error) {
		metrics, err := w.gatewayMetrics(ctx)
		return strings.Contains(string(metrics), "\ncellplane_gateway_topology_epoch "+epoch+"\n"), err
	})
}

// killHubManager kills the hub manager and deletes its lease, so that the next one need not wait until it expires.
func (w *world) killHubManager() {
	w.Helper()
	w.signal("hub-manager", "halt")
	w.releaseLease()
}

func (w *world) releaseLease() {
	w.Helper()
	err := w.hub.CoordinationV1().Leases(names.SystemNamespace).Delete(w.Context(), manager.LeaseName, metav1.DeleteOptions{})
	if err != nil {
		w.Fatalf("deleting the lease of the hub manager: %v", err)
	}
}

// inParallel runs functions concurrently. They must not call FailNow.
func inParallel(do ...func()) {
	var group sync.WaitGroup
	for _, f := range do {
		group.Go(f)
	}
	group.Wait()
}
