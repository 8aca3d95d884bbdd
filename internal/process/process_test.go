package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperEnv makes the test binary run parent.
const helperEnv = "PROCESS_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "parent" {
		parent()
	}
	os.Exit(m.Run())
}

func start(t *testing.T, script string) *Process {
	t.Helper()
	p := New(Spec{Name: "test", Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(t.TempDir(), "logs", "test.log")})
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		case <-ticker.C:
		}
	}
}

func TestKilledProcessesAreRestarted(t *testing.T) {
	p := start(t, "exec sleep 1000")
	waitFor(t, "the process runs and has memory", func() bool {
		s := p.Status(t.Context())
		return s.Healthy && s.RSS > 0
	})
	before := p.Status(t.Context())
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process runs again", func() bool {
		s := p.Status(t.Context())
		return s.Healthy && s.PID != before.PID && s.Restarts == 1
	})
}

func TestHaltedProcessesStayDown(t *testing.T) {
	p := start(t, "exec sleep 1000")
	if err := p.Halt(); err != nil {
		t.Fatal(err)
	}
	if s := p.Status(t.Context()); s.State != StateStopped || s.Healthy {
		t.Fatalf("status = %+v, want stopped", s)
	}
	if err := p.Resurrect(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process runs again", func() bool { return p.Status(t.Context()).Healthy })
}

func TestPausedProcessesHang(t *testing.T) {
	p := start(t, "exec sleep 1000")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	pid := p.Status(t.Context()).PID
	if state := kernelState(pid); state != "T" {
		t.Errorf("a paused process is in state %s", state)
	}
	if s := p.Status(t.Context()); s.State != StatePaused || s.Healthy {
		t.Fatalf("status = %+v, want paused", s)
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process resumes", func() bool { return kernelState(pid) == "S" })
}

func TestPausedProcessesCanBeStopped(t *testing.T) {
	p := start(t, "exec sleep 1000")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	pid := p.Status(t.Context()).PID
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("a paused process survived Stop")
	}
}

func TestRestartIsGraceful(t *testing.T) {
	p := start(t, `trap 'echo graceful; exit 0' TERM; echo started; while :; do sleep 0.01; done`)
	waitFor(t, "the process runs", func() bool { return strings.Contains(tail(p.spec.LogFile, 10), "started") })
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process runs again", func() bool {
		log := tail(p.spec.LogFile, 10)
		return strings.Contains(log, "graceful") && strings.Count(log, "started") == 2
	})
}

func TestDeathAtStartShowsTheLog(t *testing.T) {
	p := New(Spec{
		Name: "test", Path: "/bin/sh", Args: []string{"-c", "echo 'the port is taken' >&2; exit 3"},
		LogFile: filepath.Join(t.TempDir(), "test.log"),
		Check:   func(context.Context) error { return errors.New("not ready") },
	})
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := p.WaitReady(t.Context())
	var death *DeathError
	if !errors.As(err, &death) {
		t.Fatalf("WaitReady = %v, want a DeathError", err)
	}
	if !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("the error lacks the exit code or the log: %v", err)
	}
}

func TestProgramsThatDoNotExist(t *testing.T) {
	p := New(Spec{Name: "test", Path: "/does/not/exist", LogFile: filepath.Join(t.TempDir(), "test.log")})
	if err := p.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v, want a missing file", err)
	}
}

// parent starts a child, prints its pid and waits to be killed.
func parent() {
	p := New(Spec{Name: "child", Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}, LogFile: os.Args[1]})
	if err := p.Start(context.Background()); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(p.Status(context.Background()).PID) + "\n")
	select {}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, filepath.Join(t.TempDir(), "child.log"))
	cmd.Env = append(os.Environ(), helperEnv+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 32)
	n, err := out.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(buffer[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatal("the child does not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitFor(t, "the child is dead", func() bool { return !alive(child) })
}

func alive(pid int) bool {
	return syscall.Kill(pid, 0) == nil && kernelState(pid) != "Z"
}

// kernelState returns the state letter of a process, for example T for stopped.
func kernelState(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:1]
}
