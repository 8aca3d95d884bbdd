// Command benchelasticity measures what metrics of workloads and autoscalers of the federation cost: reports through a gateway and a cluster-gateway, decisions
// in the engine of a cell, the time from load to the Works of new pods, and requests to members for a decision, compared with asking the members.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

// settings are the sizes of a run.
type settings struct {
	binary      string
	workloads   int
	autoscalers int
	rounds      int
	loads       int
	interval    time.Duration
}

func main() {
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchelasticity:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("benchelasticity", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/cellplane", "the command to measure")
	flags.IntVar(&s.workloads, "workloads", 1000, "workloads that each of the three clusters reports")
	flags.IntVar(&s.autoscalers, "autoscalers", 50, "how many of them exist, and have an autoscaler")
	flags.IntVar(&s.rounds, "rounds", 4, "how many intervals each measurement lasts")
	flags.IntVar(&s.loads, "loads", 10, "how often the time from load to new replicas is measured, with another workload each time")
	flags.DurationVar(&s.interval, "interval", 15*time.Second, "how often clusters report")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("there are no arguments, but %q was given", flags.Arg(0))
	case s.workloads < 1 || s.autoscalers < 1 || s.rounds < 1 || s.loads < 1 || s.interval <= 0:
		return s, errors.New("all numbers and the interval must be positive")
	case s.autoscalers > s.workloads || s.loads > s.autoscalers:
		return s, errors.New("there must be as many workloads as autoscalers, and as many autoscalers as loads")
	}
	return s, nil
}

func run(ctx context.Context, s settings) error {
	f, err := start(ctx, s.binary)
	if err != nil {
		return err
	}
	defer f.stop()
	r, err := newReporters(f, s)
	if err != nil {
		return err
	}
	idle, err := f.cores(ctx, reporting, func() error { return pause(ctx, s.interval) })
	if err != nil {
		return err
	}
	// What fails while it reports ends all.
	group, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	group.Go(func() error { return r.run(running) })
	group.Go(func() error {
		defer stop()
		return measure(ctx, f, r, s, idle)
	})
	return group.Wait()
}

// measure measures while all clusters report. Idle is how many cores the parts that take reports use without any.
func measure(ctx context.Context, f *federation, r *reporters, s settings, idle float64) error {
	if err := measureReports(ctx, f, r, s, idle); err != nil {
		return fmt.Errorf("measuring reports: %w", err)
	}
	lists, err := measureDecisions(ctx, f, r, s)
	if err != nil {
		return fmt.Errorf("measuring decisions: %w", err)
	}
	if err := measureLoads(ctx, f, r, s); err != nil {
		return fmt.Errorf("measuring the time to new replicas: %w", err)
	}
	return measureAsking(ctx, f, s, lists)
}

// show prints a line of the result.
func show(what, format string, values ...any) {
	fmt.Printf("  %-58s %s\n", what, fmt.Sprintf(format, values...))
}
