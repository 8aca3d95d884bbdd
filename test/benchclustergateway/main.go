// Benchclustergateway measures the cache of member objects: what a pod costs, how fast pods come in, and how fast they are listed and
// watched, at sizes up to the largest federations. Beside it, a kube-apiserver lists the same pods.
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
)

// settings are the sizes of a run.
type settings struct {
	pods      string
	large     int
	samples   int
	watchers  int
	updates   int
	apiServer bool
}

// sizeCommand makes this program measure one size, so that every size has a process, and its memory, to itself.
const sizeCommand = "size"

func main() {
	var s settings
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	flags.StringVar(&s.pods, "pods", "100000,1000000,10000000", "how many pods the cache holds, one run for each")
	flags.IntVar(&s.large, "large", 10000, "pods in the large list")
	flags.IntVar(&s.samples, "samples", 2000, "how often small lists are read")
	flags.IntVar(&s.watchers, "watchers", 100, "watches that events are fanned out to")
	flags.IntVar(&s.updates, "updates", 20000, "updates taken in, alone and with watches")
	flags.BoolVar(&s.apiServer, "apiserver", true, "compare with a kube-apiserver")
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
		if _, err := strconv.Atoi(size); err != nil {
			return fmt.Errorf("-pods: %q is no number", size)
		}
		child := exec.CommandContext(ctx, self, append([]string{sizeCommand}, append(args, "-pods="+size)...)...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := child.Run(); err != nil {
			return fmt.Errorf("measuring %s pods: %w", size, err)
		}
	}
	if !s.apiServer {
		return nil
	}
	return compare(ctx, s)
}

// report prints a line of the result.
func report(name, format string, values ...any) {
	fmt.Printf("  %-44s %s\n", name, fmt.Sprintf(format, values...))
}
