package enclosure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Address is the address of the interface eth0 in an enclosure. There is nothing beyond it.
const Address = "10.88.0.2"

// Options say what an enclosure has of its own.
type Options struct {
	// Private are directories that are empty in the enclosure, on the file system of Dir. What is written to others below /etc and /var is not seen
	// outside either, and /run is always empty.
	Private []string
	// Kept are files below /proc/sys that stay as they are outside when somebody in the enclosure writes to them.
	Kept []string
	// Hostname is the name of the machine in the enclosure.
	Hostname string
	// Prepare makes something outside, before the tests begin, and returns data for them. The directory is that of the enclosure. It may be nil.
	Prepare func(ctx context.Context, dir string) (map[string]string, error) `json:"-"`
}

// Enclosure is what the processes know of an enclosure.
type Enclosure struct {
	Options

	// Dir is for files. It is removed in the end.
	Dir string
	// Data is what Prepare has returned.
	Data    map[string]string
	Cgroups []cgroup
	// Trial says that there are no tests: the first process ends when all is mounted and connected.
	Trial bool
}

// stage is one of the processes.
type stage string

const (
	joiner stage = "joiner"
	first  stage = "first"
	tests  stage = "tests"
)

const (
	stageEnv     = "CELLPLANE_ENCLOSURE_STAGE"
	enclosureEnv = "CELLPLANE_ENCLOSURE"
)

var inside *Enclosure

// A program that is started as one of the stages does nothing else.
func init() {
	current := stage(os.Getenv(stageEnv))
	if current == "" {
		return
	}
	e := &Enclosure{}
	if err := json.Unmarshal([]byte(os.Getenv(enclosureEnv)), e); err != nil {
		fail(err)
	}
	switch current {
	case joiner:
		code, err := e.join()
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	case first:
		code, err := e.enter()
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	case tests:
		inside = e
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "enclosing the tests:", err)
	os.Exit(1)
}

// Inside returns the enclosure in which this program runs, nil if it runs outside.
func Inside() *Enclosure { return inside }

// Run runs this program again with the same arguments, in a new enclosure, and returns its exit code. It fails if something is left afterwards. It also
// removes what is left of enclosures whose programs were killed. A signal ends the tests.
func Run(options Options) (code int, err error) {
	if err := Sweep(); err != nil {
		return 1, err
	}
	e := &Enclosure{Options: options}
	return e.run(os.Stderr)
}

// run creates the enclosure, runs this program in it, and removes it.
func (e *Enclosure) run(stderr io.Writer) (code int, err error) {
	// As long as this program ends by no signal, it can remove what it has made.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM)
	defer stop()
	release, err := e.create()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if e.Prepare != nil {
		if e.Data, err = e.Prepare(ctx, e.Dir); err != nil {
			return 1, err
		}
	}
	command, err := e.command(ctx, joiner)
	if err != nil {
		return 1, err
	}
	command.Stderr = stderr
	code, err = run(command)
	if ctx.Err() != nil {
		return 1, fmt.Errorf("the tests were ended: %w", context.Cause(ctx))
	}
	return code, err
}

// create makes the directory and the cgroups.
func (e *Enclosure) create() (release func() error, err error) {
	lock, err := newLock()
	if err != nil {
		return nil, err
	}
	release = func() error {
		defer lock.Close()
		return remove(lock)
	}
	e.Dir = strings.TrimSuffix(lock.Name(), lockSuffix)
	if err := e.fill(lock); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

func (e *Enclosure) fill(lock *os.File) (err error) {
	if e.Cgroups, err = newCgroups(filepath.Base(e.Dir)); err != nil {
		return err
	}
	if err := record(lock, e.Cgroups); err != nil {
		return err
	}
	for i := range e.Cgroups {
		if err := e.Cgroups[i].create(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(e.Dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"tmp", "private"} {
		if err := os.Mkdir(filepath.Join(e.Dir, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// command returns this program as another stage. It is killed when the context ends.
func (e *Enclosure) command(ctx context.Context, s stage) (*exec.Cmd, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), stageEnv+"="+string(s), enclosureEnv+"="+string(text))
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command, nil
}

// run runs a command that dies with this process. For the kernel the parent of a child is the thread that made it, so this one stays.
func run(command *exec.Cmd) (code int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if exit.ExitCode() < 0 { // by a signal
			return 1, err
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// join moves this process into the cgroups, and starts the first process of new namespaces there.
func (e *Enclosure) join() (code int, err error) {
	for _, c := range e.Cgroups {
		if err := c.join(); err != nil {
			return 1, err
		}
	}
	command, err := e.command(context.Background(), first)
	if err != nil {
		return 1, err
	}
	command.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP
	return run(command)
}

// enter makes the namespaces usable, starts the tests, and ends with them. The kernel then kills all other processes.
func (e *Enclosure) enter() (code int, err error) {
	if err := e.mount(); err != nil {
		return 1, err
	}
	if err := unix.Sethostname([]byte(e.Hostname)); err != nil {
		return 1, fmt.Errorf("naming the machine: %w", err)
	}
	if err := connect(); err != nil {
		return 1, err
	}
	if e.Trial {
		return 0, nil
	}
	command, err := e.command(context.Background(), tests)
	if err != nil {
		return 1, err
	}
	command.Env = append(command.Env, "TMPDIR="+filepath.Join(e.Dir, "tmp"))
	runtime.LockOSThread()
	if err := command.Start(); err != nil { // without Wait, which would take the end of the child from adopt
		return 1, err
	}
	return adopt(command.Process.Pid)
}

// adopt waits for children, also for those whose parents have died, until one process has ended, and returns its exit code.
func adopt(pid int) (code int, err error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, err
		case ended == pid && status.Exited():
			return status.ExitStatus(), nil
		case ended == pid:
			return 1, fmt.Errorf("the tests ended with signal %s", status.Signal())
		}
	}
}
