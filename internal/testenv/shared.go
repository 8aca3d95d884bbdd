package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// supervisorEnv makes a test binary supervise shared control planes instead of running its tests.
const supervisorEnv = "CELLPLANE_TESTENV_SUPERVISOR"

// job is the input of such a supervisor.
type job struct {
	Dir   string
	Spec  local.Spec
	Bin   kubebin.Binaries
	While int // the process with which the supervisor ends
}

// A test binary that is started as a supervisor does not run its tests.
func init() {
	text := os.Getenv(supervisorEnv)
	if text == "" {
		return
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		waitForEnd(j.While)
	}()
	if err := local.Supervise(ctx, j.Dir, j.Spec, local.Options{Binaries: j.Bin, NoFsync: true, Streams: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.RemoveAll(filepath.Dir(j.Dir)) // the last supervisor removes everything
	os.Exit(0)
}

// waitForEnd polls until a process that is not a child has ended.
func waitForEnd(pid int) {
	for syscall.Kill(pid, 0) == nil {
		time.Sleep(200 * time.Millisecond)
	}
}

// shared returns the control planes of a federation. The first package that calls it starts the federation.
func shared(t testing.TB, name string, spec local.Spec) []*ControlPlane {
	t.Helper()
	binaries := Binaries(t)
	owner := owner()
	run := filepath.Join(os.TempDir(), "cellplane-test-"+strconv.Itoa(owner))
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, filepath.Join(run, name+".lock"))
	defer unlock()
	dir := filepath.Join(run, name)
	if !local.InUse(dir) {
		spawn(t, job{Dir: dir, Spec: spec, Bin: binaries, While: owner})
	}
	client, err := local.NewClient(dir)
	if err != nil {
		t.Fatal(err)
	}
	var report local.Report
	Eventually(t, "the shared control planes are ready", func(ctx context.Context) (bool, error) {
		var err error
		report, err = client.Report(ctx)
		if report.Phase == local.PhaseFailed {
			t.Fatal(report.Error)
		}
		return report.Phase == local.PhaseReady, err
	})
	return controlPlanes(t, dir, spec.ControlPlaneNames())
}

// owner returns the process that ends with the test run: the go command, or this test binary if it was started directly.
func owner() int {
	parent := os.Getppid()
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err == nil && strings.TrimSpace(string(comm)) == "go" {
		return parent
	}
	return os.Getpid()
}

func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// spawn starts this test binary as a supervisor that outlives it.
func spawn(t testing.TB, j job) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(j.Dir + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), supervisorEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	died := make(chan struct{})
	go func() { _ = cmd.Wait(); close(died) }()
	Eventually(t, "the supervisor of the shared control planes runs", func(context.Context) (bool, error) {
		select {
		case <-died:
			output, _ := os.ReadFile(j.Dir + ".log")
			t.Fatalf("the supervisor of the shared control planes died: %s", bytes.TrimSpace(output))
		default:
		}
		return local.InUse(j.Dir), nil
	})
}
