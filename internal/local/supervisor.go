package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/process"
)

// The phases of a supervised federation.
const (
	PhaseStarting = "starting"
	PhaseReady    = "ready"
	PhaseFailed   = "failed"
	PhaseStopping = "stopping"
)

// Report is the state of a supervised federation.
type Report struct {
	PID       int              `json:"pid"`
	Phase     string           `json:"phase"`
	Error     string           `json:"error,omitempty"`
	Started   time.Time        `json:"started"`
	ReadyIn   time.Duration    `json:"readyIn,omitempty"` // how long the start took
	Ready     []string         `json:"ready,omitempty"`   // control planes, as they become ready
	Total     int              `json:"total"`             // control planes
	Note      string           `json:"note,omitempty"`    // what is missing yet
	Processes []process.Status `json:"processes,omitempty"`
}

// startTimeout bounds the start of a federation. It is long, for loaded machines.
const startTimeout = 5 * time.Minute

// Supervisor runs a federation and serves its state and control on a socket.
type Supervisor struct {
	federation *Federation
	stop       context.CancelFunc

	mu     sync.Mutex
	report Report
}

// Supervise runs the federation in dir until ctx ends or a client stops it. It returns after all processes have ended.
func Supervise(ctx context.Context, dir string, spec Spec, options Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	federation, err := Open(dir, spec, options)
	if err != nil {
		return err
	}
	defer federation.Close()
	s := &Supervisor{federation: federation, stop: cancel}
	s.report = Report{PID: os.Getpid(), Phase: PhaseStarting, Started: time.Now(), Total: len(federation.ControlPlanes())}

	server, err := s.serve(federation.dir)
	if err != nil {
		return err
	}
	defer server.Close()
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.start(ctx)
	}()

	<-ctx.Done()
	s.set(func(r *Report) { r.Phase = PhaseStopping })
	<-started // nothing starts any more
	return federation.Stop(context.WithoutCancel(ctx))
}

// start starts the federation, and keeps its certificates valid until the context ends. If that fails, all processes are stopped but the supervisor keeps serving its report, so that
// clients can read the reason.
func (s *Supervisor) start(ctx context.Context) {
	began := time.Now()
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := s.federation.Start(startCtx, func(name string) {
		s.set(func(r *Report) { r.Ready = append(r.Ready, name) })
	})
	if err == nil {
		note, later := s.federation.later()
		s.set(func(r *Report) { r.Phase, r.ReadyIn, r.Note = PhaseReady, time.Since(began), note })
		var wait sync.WaitGroup
		defer wait.Wait()
		wait.Go(func() { s.startLater(ctx, later) })
		s.federation.keepCertificates(ctx)
		return
	}
	if ctx.Err() != nil {
		return // stopped while starting
	}
	klog.FromContext(ctx).Error(err, "federation did not start")
	s.set(func(r *Report) { r.Phase, r.Error = PhaseFailed, err.Error() })
	if err := s.federation.Stop(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "stopping a partly started federation failed")
	}
}

// startLater starts what the federation works without, and notes why it fails.
func (s *Supervisor) startLater(ctx context.Context, start func(context.Context) error) {
	note := ""
	if err := start(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "a part of the federation is missing")
		note = err.Error()
	}
	s.set(func(r *Report) { r.Note = note })
}

func (s *Supervisor) set(change func(*Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

// serve listens on the socket in dir, which only this user can access.
func (s *Supervisor) serve(dir string) (*http.Server, error) {
	path, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // this process holds the lock, so the socket is stale
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for commands: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", s.handleReport)
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { s.stop() })
	mux.HandleFunc("POST /signal", s.handleSignal)
	mux.HandleFunc("POST /cells", s.handleAddCell)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func (s *Supervisor) handleReport(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	report := s.report
	s.mu.Unlock()
	if r.URL.Query().Has("processes") {
		report.Processes = s.federation.Status(r.Context())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report)
}

func (s *Supervisor) handleSignal(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p, err := s.federation.Process(query.Get("process"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	act, ok := map[string]func() error{
		"kill": p.Kill, "pause": p.Pause, "resume": p.Resume, "restart": p.Restart, "halt": p.Halt, "resurrect": p.Resurrect,
	}[query.Get("action")]
	if !ok {
		http.Error(w, fmt.Sprintf("there is no action %q", query.Get("action")), http.StatusBadRequest)
		return
	}
	if err := act(); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (s *Supervisor) handleAddCell(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	phase := s.report.Phase
	s.mu.Unlock()
	if phase != PhaseReady {
		http.Error(w, "the federation is "+phase, http.StatusConflict)
		return
	}
	// Finish even if the client is interrupted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), startTimeout)
	defer cancel()
	if err := s.federation.AddCell(ctx, r.URL.Query().Get("name")); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	s.set(func(r *Report) { r.Total = len(s.federation.ControlPlanes()) })
}
