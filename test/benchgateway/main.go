// Benchgateway compares the direct use of a cell's API server with its use through the gateway: throughput, latency, and the CPU time of
// each process.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// settings are the sizes of a run.
type settings struct {
	seconds time.Duration
	workers int
	small   int
	large   int
	watches int
	// flooding is how many watches one user asks for.
	flooding int
	only     string
	profile  string
}

func main() {
	if part := partOf(os.Args); part != nil {
		if err := part(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flag.DurationVar(&s.seconds, "time", 10*time.Second, "duration of each load")
	flag.IntVar(&s.workers, "workers", 8, "concurrent requests")
	flag.IntVar(&s.small, "small", 1000, "objects in the small list")
	flag.IntVar(&s.large, "large", 10000, "objects in the large list")
	flag.IntVar(&s.watches, "watches", 1000, "idle watches")
	flag.IntVar(&s.flooding, "flood", 20000, "watches that one user asks for")
	flag.StringVar(&s.only, "only", "", "run only loads whose names have this prefix; flood is that of watches")
	flag.StringVar(&s.profile, "profile", "", "directory for CPU profiles of the gateway, one for each round of each load")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// partOf returns the role of this process, empty if it is the one that measures.
func partOf(args []string) func([]string) error {
	if len(args) < 2 {
		return nil
	}
	switch args[1] {
	case gatewayCommand:
		return runGateway
	case floorCommand:
		return runFloor
	default:
		return nil
	}
}

func run(ctx context.Context, s settings) error {
	b, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer b.stop()
	fmt.Printf("%-28s %-8s %9s %9s %9s %12s %12s\n", "load", "way", "req/s", "p50 ms", "p99 ms", "server µs", "proxy µs")
	for _, load := range b.loads() {
		if !strings.HasPrefix(load.name, s.only) {
			continue
		}
		if err := b.compare(ctx, load); err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
	}
	if s.only == "flood" {
		return b.floodLoad(ctx)
	}
	if s.only != "" {
		return nil
	}
	if err := b.watchLoad(ctx); err != nil {
		return err
	}
	if err := b.floodLoad(ctx); err != nil {
		return err
	}
	if err := b.splicing(ctx); err != nil {
		return err
	}
	b.printCPU()
	return nil
}
