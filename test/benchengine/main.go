// Command benchengine measures the engine of a cell against real control
// planes: how fast a Deployment reaches three members and its status comes
// back, what that costs the cell, and what the death and restart of engines
// cost. It starts everything it needs and prints tables for docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/internal/kubebin"
)

// options are the flags.
type options struct {
	workloads  int
	sequential int
	writers    int
	kills      int
	restart    int
	full       bool
	rollouts   int
	program    string
	dir        string
	out        string
}

func main() {
	var o options
	flag.IntVar(&o.workloads, "n", 1000, "Deployments that are created at once and then updated")
	flag.IntVar(&o.sequential, "latency-n", 50, "Deployments that are created one after the other")
	flag.IntVar(&o.writers, "writers", 20, "how many clients create and update at once")
	flag.IntVar(&o.kills, "kills", 3, "how often the active engine is killed; 0 leaves out kills and restarts")
	flag.BoolVar(&o.full, "full", false, "measure nothing but a restart of the engines, with -restart-n workloads")
	flag.IntVar(&o.restart, "restart-n", 10000, "workloads when the engines are restarted, with -full; they have no replicas and are paused")
	flag.IntVar(&o.rollouts, "rollouts", 0, "measure nothing but so many image updates of a Deployment with divided replicas")
	flag.StringVar(&o.program, "program", "", "cellplane binary to measure (default: built from ./cmd/cellplane)")
	flag.StringVar(&o.dir, "dir", "", "new directory for the federation, which is kept (default: a temporary one)")
	flag.StringVar(&o.out, "out", "", "file for the figures as JSON")
	flag.Parse()
	if err := o.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "benchengine:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctrllog.SetLogger(klog.Background())
	err := o.run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchengine:", err)
		os.Exit(1)
	}
}

func (o *options) validate() error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.workloads < 1 || o.sequential < 1 || o.writers < 1 || o.kills < 0 || o.rollouts < 0 || o.restart < 1 {
		return errors.New("all numbers must be at least 1, -kills and -rollouts at least 0")
	}
	return nil
}

// run keeps a directory that was given, and that of a failed run: it has the logs.
func (o *options) run(ctx context.Context) error {
	if o.dir != "" {
		if err := os.Mkdir(o.dir, 0o700); err != nil {
			return err
		}
		return o.runIn(ctx, o.dir)
	}
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	err = o.runIn(ctx, dir)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (logs and data are left in %s)", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func (o *options) runIn(ctx context.Context, dir string) (err error) {
	binaries, err := kubebin.Ensure(ctx, func(what string, _ int) { progress("building %s", what) })
	if err != nil {
		return err
	}
	program, err := o.cellplane(ctx, dir)
	if err != nil {
		return err
	}
	progress("starting a cell and %d members", memberCount)
	fed, err := startFederation(ctx, filepath.Join(dir, "federation"), binaries)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fed.stop()) }()
	pair, err := newEngines(fed, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pair.stop()) }()
	if err := pair.start(ctx); err != nil {
		return err
	}
	b, err := newBench(ctx, o, fed, pair)
	if err != nil {
		return err
	}
	return b.run(ctx)
}

// cellplane returns the program to measure.
func (o *options) cellplane(ctx context.Context, dir string) (string, error) {
	if o.program != "" {
		return filepath.Abs(o.program)
	}
	progress("building cellplane")
	program := filepath.Join(dir, "cellplane")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/cellplane/cellplane/cmd/cellplane")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building cellplane: %w", err)
	}
	return program, nil
}

var began = time.Now()

// progress prints what is being done.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
