package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 10 * time.Second
	// stableAfter is the uptime after which the back-off is reset.
	stableAfter = 30 * time.Second
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 15 * time.Second
)

// Spec describes a process.
type Spec struct {
	// Name identifies the process within its federation, for example "cell-a/etcd".
	Name string
	// Path is the executable, Args its arguments without the program name.
	Path string
	Args []string
	// Env is added to the environment of this program; later values win.
	Env []string
	// LogFile is appended with standard output and error.
	LogFile string
	// Check reports whether the process is healthy. If nil, a running process is healthy.
	Check func(ctx context.Context) error
}

// Process is a supervised process. Create one with New, then Start it.
type Process struct {
	spec Spec

	mu       sync.Mutex
	cmd      *exec.Cmd     // nil while not running
	exited   chan struct{} // closed when cmd has been reaped
	wanted   bool          // whether the process should be running
	paused   bool
	restarts int
	started  time.Time
	lastExit string

	wake chan struct{} // notifies the supervisor that wanted has changed
	done chan struct{} // closed when the supervisor has ended
	stop context.CancelFunc
}

// New returns a process that is not running yet.
func New(spec Spec) *Process {
	return &Process{spec: spec, wake: make(chan struct{}, 1)}
}

// Name returns the name given in the Spec.
func (p *Process) Name() string { return p.spec.Name }

// Start starts the process and keeps it running until Stop. It does not wait until the process is ready.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	if p.stop != nil {
		p.mu.Unlock()
		return p.Resurrect()
	}
	p.wanted = true
	if err := p.launch(); err != nil {
		p.wanted = false
		p.mu.Unlock()
		return err
	}
	// Supervision outlives this call; Stop ends it.
	superviseCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = cancel
	p.done = make(chan struct{})
	p.mu.Unlock()
	go p.supervise(superviseCtx)
	return nil
}

// launch starts the command. The caller holds mu.
func (p *Process) launch() error {
	if err := os.MkdirAll(filepath.Dir(p.spec.LogFile), 0o700); err != nil {
		return fmt.Errorf("starting %s: %w", p.spec.Name, err)
	}
	log, err := os.OpenFile(p.spec.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.spec.Name, err)
	}
	defer log.Close() // the child has its own descriptor

	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Env = append(os.Environ(), p.spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if err := forkWithParentThread(cmd.Start); err != nil {
		return fmt.Errorf("starting %s: %w", p.spec.Name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited, p.paused, p.started = cmd, exited, false, time.Now()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.cmd = nil
		p.lastExit = exitText(err)
		p.mu.Unlock()
		close(exited)
	}()
	return nil
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// supervise restarts the process when it dies while it is wanted.
func (p *Process) supervise(ctx context.Context) {
	defer close(p.done)
	logger := klog.FromContext(ctx).WithValues("process", p.spec.Name)
	backoff := firstBackoff
	for {
		p.mu.Lock()
		exited, started := p.exited, p.started
		p.mu.Unlock()

		select {
		case <-ctx.Done():
			return
		case <-exited:
		}
		if time.Since(started) > stableAfter {
			backoff = firstBackoff
		}
		if !p.waitUntilWanted(ctx, backoff) {
			return
		}
		backoff = min(2*backoff, maxBackoff)

		p.mu.Lock()
		if p.wanted && p.cmd == nil {
			p.restarts++
			logger.Info("restarting process", "lastExit", p.lastExit, "restarts", p.restarts)
			if err := p.launch(); err != nil {
				logger.Error(err, "process cannot be restarted")
				p.lastExit = err.Error()
			}
		}
		p.mu.Unlock()
	}
}

// waitUntilWanted waits until the back-off has passed and the process is wanted. It returns false when supervision ends.
func (p *Process) waitUntilWanted(ctx context.Context, backoff time.Duration) bool {
	timer := time.NewTimer(backoff)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-p.wake: // restart on request, without back-off
		case <-timer.C:
		}
		p.mu.Lock()
		wanted := p.wanted
		p.mu.Unlock()
		if wanted {
			return true
		}
	}
}

// Kill kills the process with SIGKILL. It is restarted as after a crash.
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL) }

// Pause stops the process with SIGSTOP. Its connections stay open.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("pausing %s: %w", p.spec.Name, errNotRunning)
	}
	if err := awaitStop(p.cmd.Process.Pid); err != nil {
		return fmt.Errorf("pausing %s: %w", p.spec.Name, err)
	}
	p.paused = true
	return nil
}

// Resume continues a paused process.
func (p *Process) Resume() error {
	if err := p.signal(syscall.SIGCONT); err != nil {
		return err
	}
	p.mu.Lock()
	p.paused = false
	p.mu.Unlock()
	return nil
}

// Halt kills the process with SIGKILL and keeps it down until Resurrect.
func (p *Process) Halt() error {
	p.mu.Lock()
	p.wanted = false
	exited := p.exited
	p.mu.Unlock()
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	if exited != nil {
		<-exited
	}
	return nil
}

// Resurrect starts a halted process again.
func (p *Process) Resurrect() error {
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// Restart stops the process gracefully and starts it again.
func (p *Process) Restart() error {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	if exited == nil {
		return fmt.Errorf("restarting %s: %w", p.spec.Name, errNotRunning)
	}
	if err := p.endGracefully(exited); err != nil {
		return err
	}
	return p.Resurrect()
}

// Stop ends supervision and the process: with SIGTERM, and after a grace period or when ctx ends with SIGKILL.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	stop, done := p.stop, p.done
	p.wanted = false
	p.stop = nil
	p.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	<-done
	// The supervisor may have restarted the process before it saw the cancellation.
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = p.signal(syscall.SIGKILL) })()
	return p.endGracefully(exited)
}

func (p *Process) endGracefully(exited chan struct{}) error {
	_ = p.signal(syscall.SIGCONT) // a paused process cannot handle SIGTERM
	if err := p.signal(syscall.SIGTERM); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-time.After(stopGrace):
	}
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	<-exited
	return nil
}

var errNotRunning = errors.New("the process is not running")

func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("signalling %s: %w", p.spec.Name, errNotRunning)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling %s: %w", p.spec.Name, err)
	}
	return nil
}

// WaitReady waits until the process is healthy. If it dies first, the error has the last lines of the log.
func (p *Process) WaitReady(ctx context.Context) error {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	if p.spec.Check == nil {
		return nil
	}
	var last error
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if last = p.Check(ctx); last == nil {
			return nil
		}
		select {
		case <-exited:
			return p.deathError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (log: %s)", p.spec.Name, last, p.spec.LogFile)
		case <-ticker.C:
		}
	}
}

// Check returns an error if the process is not running or not healthy.
func (p *Process) Check(ctx context.Context) error {
	p.mu.Lock()
	running, lastExit := p.cmd != nil, p.lastExit
	p.mu.Unlock()
	if !running {
		return fmt.Errorf("not running: %s", lastExit)
	}
	if p.spec.Check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return p.spec.Check(ctx)
}

func (p *Process) deathError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &DeathError{Name: p.spec.Name, Exit: p.lastExit, LogFile: p.spec.LogFile, LogTail: tail(p.spec.LogFile, 15)}
}

// DeathError is returned for a process that died before it was ready.
type DeathError struct {
	Name, Exit, LogFile, LogTail string
}

// Error returns one sentence followed by the last lines of the log.
func (e *DeathError) Error() string {
	return fmt.Sprintf("%s died at start (%s); the end of %s:\n%s", e.Name, e.Exit, e.LogFile, e.LogTail)
}
