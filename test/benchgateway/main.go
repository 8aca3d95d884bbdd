// Benchgateway compares, in one run, what it costs to use a cell's API server directly and through the gateway: throughput, latency, and
// the CPU time of every process.
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
	only    string
	profile string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == gatewayCommand {
		if err := runGateway(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flag.DurationVar(&s.seconds, "time", 10*time.Second, "how long each load lasts")
	flag.IntVar(&s.workers, "workers", 8, "how many requests are under way at once")
	flag.IntVar(&s.small, "small", 1000, "objects in the small list")
	flag.IntVar(&s.large, "large", 10000, "objects in the large list")
	flag.IntVar(&s.watches, "watches", 1000, "idle watches")
	flag.StringVar(&s.only, "only", "", "run only loads whose name begins so")
	flag.StringVar(&s.profile, "profile", "", "directory for a CPU profile of the gateway under each load")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	b, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer b.stop()
	fmt.Printf("%-28s %-8s %9s %9s %9s %12s %12s\n", "load", "way", "req/s", "p50 ms", "p99 ms", "server µs", "gateway µs")
	for _, load := range b.loads() {
		if !strings.HasPrefix(load.name, s.only) {
			continue
		}
		if err := b.compare(ctx, load); err != nil {
			return fmt.Errorf("%s: %w", load.name, err)
		}
	}
	if s.only != "" {
		return nil
	}
	if err := b.watchLoad(ctx); err != nil {
		return err
	}
	if err := b.splicing(ctx); err != nil {
		return err
	}
	b.printCPU()
	return nil
}
