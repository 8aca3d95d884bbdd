//go:build linux && amd64

package wallclock_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cellplane/cellplane/internal/testenv/wallclock"
)

// clockEnv has the test print its clocks instead.
const clockEnv = "CELLPLANE_TEST_PRINT_CLOCKS"

func TestMain(m *testing.M) {
	if os.Getenv(clockEnv) == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := time.Now()
		fmt.Println(now.Unix(), int(now.Sub(began).Seconds()))
	}
}

// clocks is a process that prints its clocks.
type clocks struct {
	pid    int
	ask    func() error
	answer *bufio.Scanner
}

func start(t *testing.T) *clocks {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), clockEnv+"=yes")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &clocks{pid: cmd.Process.Pid, answer: bufio.NewScanner(stdout), ask: func() error {
		_, err := fmt.Fprintln(stdin)
		return err
	}}
}

// read returns by how much the wall clock of the process differs, and what its monotonic clock has counted.
func (c *clocks) read(t *testing.T) (difference, monotonic time.Duration) {
	t.Helper()
	if err := c.ask(); err != nil || !c.answer.Scan() {
		t.Fatalf("it does not answer: %v, %v", err, c.answer.Err())
	}
	var wall, seconds int64
	if _, err := fmt.Sscan(c.answer.Text(), &wall, &seconds); err != nil {
		t.Fatal(err)
	}
	return time.Until(time.Unix(wall, 0)).Round(10 * time.Minute), time.Duration(seconds) * time.Second
}

func TestShift(t *testing.T) {
	c := start(t)
	for _, offset := range []time.Duration{0, 5 * time.Hour, -7 * time.Hour, 1000 * time.Hour, 0} {
		if err := wallclock.Shift(c.pid, offset); err != nil {
			t.Fatal(err)
		}
		difference, monotonic := c.read(t)
		if difference != offset {
			t.Errorf("its wall clock differs by %v, want %v", difference, offset)
		}
		if monotonic < 0 || monotonic > time.Hour {
			t.Errorf("its monotonic clock has counted %v", monotonic)
		}
	}
	if own := time.Since(time.Now().Round(0)); own > time.Hour || own < -time.Hour {
		t.Errorf("the clock of the test has moved by %v", own)
	}
}

func TestErrors(t *testing.T) {
	c := start(t)
	if err := wallclock.Shift(c.pid, time.Millisecond); err == nil || !strings.Contains(err.Error(), "whole seconds") {
		t.Errorf("shifting by a part of a second: %v", err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := wallclock.Shift(ended.Process.Pid, time.Second); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("shifting the clock of a process that has ended: %v", err)
	}
	if difference, _ := c.read(t); difference != 0 {
		t.Errorf("the wall clock differs by %v", difference)
	}
}
