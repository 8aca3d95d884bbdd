// Benchcells measures the cost of changes to cells: how fast objects move to a fourth cell, how long writes take
// before, during and after, what backups cost, and how soon the objects of a killed cell are served again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// settings are the sizes of a run.
type settings struct {
	program string
	objects int
	rate    int
	load    time.Duration
	workers int
	rounds  int
	durable bool
}

func main() {
	var s settings
	flag.StringVar(&s.program, "program", "bin/cellplane", "the program to measure")
	flag.IntVar(&s.objects, "objects", 20_000, "number of objects")
	flag.IntVar(&s.rate, "rate", 60, "writes per second during the measurements")
	flag.DurationVar(&s.load, "time", 20*time.Second, "duration of a load without a change")
	flag.IntVar(&s.rounds, "rounds", 3, "number of rounds of each load without a change")
	flag.IntVar(&s.workers, "workers", 16, "number of concurrent creations; up to four times as many writes are under way")
	flag.BoolVar(&s.durable, "durability", false, "compare durable writes with others, and measure nothing else")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	w, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if s.durable {
		return w.durability(ctx)
	}
	if err := w.populate(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{w.backupCost, w.addCell, w.failOver} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
