package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Status is a snapshot of a process.
type Status struct {
	Name     string        `json:"name"`
	PID      int           `json:"pid,omitempty"`
	State    string        `json:"state"` // running, paused, stopped, waiting
	Healthy  bool          `json:"healthy"`
	Message  string        `json:"message,omitempty"`
	Restarts int           `json:"restarts"`
	Uptime   time.Duration `json:"uptime,omitempty"`
	RSS      int64         `json:"rss,omitempty"` // bytes
	CPU      time.Duration `json:"cpu,omitempty"` // user and system time since start
	LogFile  string        `json:"logFile"`
}

// The states of a process.
const (
	StateRunning = "running"
	StatePaused  = "paused"
	StateStopped = "stopped" // on request
	StateWaiting = "waiting" // to be restarted after a crash
)

// Status returns a snapshot of the process, with a new health check. A paused process is unhealthy.
func (p *Process) Status(ctx context.Context) Status {
	s := p.snapshot()
	switch s.State {
	case StateRunning:
		if err := p.Check(ctx); err != nil {
			s.Message = err.Error()
		} else {
			s.Healthy = true
		}
	case StatePaused:
		s.Message = "paused"
	}
	return s
}

// snapshot returns all but the health.
func (p *Process) snapshot() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Name: p.spec.Name, Restarts: p.restarts, LogFile: p.spec.LogFile}
	switch {
	case p.cmd == nil && p.wanted:
		s.State, s.Message = StateWaiting, p.lastExit
		return s
	case p.cmd == nil:
		s.State, s.Message = StateStopped, p.lastExit
		return s
	case p.paused:
		s.State = StatePaused
	default:
		s.State = StateRunning
	}
	s.PID = p.cmd.Process.Pid
	s.Uptime = time.Since(p.started).Round(time.Second)
	if u, err := UsageOf(s.PID); err == nil {
		s.RSS, s.CPU = u.RSS, u.CPU
	}
	return s
}

// PID returns the process ID, 0 while the process is not running.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Usage is the resource usage of a process.
type Usage struct {
	RSS int64
	CPU time.Duration
}

// clockTick is the unit of CPU times in /proc: 1/100 s on every Linux port Go supports.
const clockTick = 10 * time.Millisecond

// UsageOf reads the resident memory and CPU time of a process from /proc.
func UsageOf(pid int) (Usage, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The command name in parentheses may contain spaces; fields are counted after it.
	_, rest, found := bytes.Cut(data[bytes.LastIndexByte(data, ')')+1:], []byte(" "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 22 {
		return Usage{}, fmt.Errorf("process %d: unexpected format of /proc/%d/stat", pid, pid)
	}
	field := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return n
	}
	return Usage{
		RSS: field(21) * int64(os.Getpagesize()),
		CPU: time.Duration(field(11)+field(12)) * clockTick,
	}, nil
}
