// Benchcells measures what a change of the cells costs those who use them: how fast objects move to a fourth cell, how long writes take
// before, during and after, what backups cost, and how soon the share of a cell that was killed is served again.
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
}

func main() {
	var s settings
	flag.StringVar(&s.program, "program", "bin/cellplane", "the program to measure")
	flag.IntVar(&s.objects, "objects", 20_000, "how many objects there are")
	flag.IntVar(&s.rate, "rate", 60, "writes per second during the measurements")
	flag.DurationVar(&s.load, "time", 20*time.Second, "how long a quiet load lasts")
	flag.IntVar(&s.rounds, "rounds", 3, "how many times each quiet load is repeated")
	flag.IntVar(&s.workers, "workers", 16, "how many writes may be under way at once")
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
	if err := w.fill(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{w.backupCost, w.addCell, w.failOver} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
