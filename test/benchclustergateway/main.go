// Benchclustergateway measures the cache of member objects: the memory per pod, and the speed of ingest, lists and watches, at sizes up
// to the largest federations. For comparison, a kube-apiserver lists the same pods.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the sizes of a run.
type settings struct {
	pods      string
	large     int
	samples   int
	watchers  int
	updates   int
	apiServer bool
	through   int
	rate      int
	rateTime  time.Duration
}

// sizeCommand measures one size, so that each size has its own process and memory.
const sizeCommand = "size"

func main() {
	if len(os.Args) > 1 && os.Args[1] == gatewayCommand {
		if err := runGateway(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	flags.StringVar(&s.pods, "pods", "100000,1000000,10000000", "how many pods the cache holds, one run for each; empty leaves this out")
	flags.IntVar(&s.large, "large", 10000, "pods in the large list")
	flags.IntVar(&s.samples, "samples", 2000, "how often small lists are read")
	flags.IntVar(&s.watchers, "watchers", 100, "watches that events are fanned out to")
	flags.IntVar(&s.updates, "updates", 20000, "updates taken in, alone and with watches")
	flags.BoolVar(&s.apiServer, "apiserver", true, "compare with a kube-apiserver")
	flags.IntVar(&s.through, "through", 60000, "pods that a cluster-gateway reads from API servers; 0 leaves this out")
	flags.IntVar(&s.rate, "rate", 1000, "updates a second while the latency of watches is measured")
	flags.DurationVar(&s.rateTime, "rate-time", 10*time.Second, "how long it is measured")
	args := os.Args[1:]
	one := len(args) > 0 && args[0] == sizeCommand
	if one {
		args = args[1:]
	}
	// The flag set exits on errors.
	_ = flags.Parse(args)

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if one {
		err = measureSize(ctx, s)
	} else {
		err = run(ctx, s, args)
	}
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for size := range strings.SplitSeq(s.pods, ",") {
		if size == "" {
			continue
		}
		if _, err := strconv.Atoi(size); err != nil {
			return fmt.Errorf("-pods: %q is not a number", size)
		}
		child := exec.CommandContext(ctx, self, append([]string{sizeCommand}, append(args, "-pods="+size)...)...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := child.Run(); err != nil {
			return fmt.Errorf("measuring %s pods: %w", size, err)
		}
	}
	if s.apiServer {
		if err := compare(ctx, s); err != nil {
			return fmt.Errorf("comparing with kube-apiserver: %w", err)
		}
	}
	if s.through > 0 {
		if err := throughAPIServers(ctx, s); err != nil {
			return fmt.Errorf("reading from API servers: %w", err)
		}
	}
	return nil
}

// report prints a line of the result.
func report(name, format string, values ...any) {
	fmt.Printf("  %-44s %s\n", name, fmt.Sprintf(format, values...))
}
