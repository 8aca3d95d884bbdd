// Command benchscheduler measures the scheduler. Without a federation: how many placements are decided in a second for
// federations of different sizes, how long a cold simulation takes, and what a node costs in memory. In a real cell: how
// many bindings are placed in a second, and how long it takes to replace a lost cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	clusters []int
	nodes    int
	cold     int
	duration time.Duration
	cores    int

	// For the real cell: the number of bindings, the workloads of the lost cluster, the clients that create them,
	// and the file for a CPU profile.
	bindings, workloads, writers int
	profile                      string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o)
		cancel()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "benchscheduler: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("benchscheduler", flag.ContinueOnError)
	clusters := flags.String("clusters", "100,500,2000", "sizes of federations, in clusters")
	flags.IntVar(&o.nodes, "nodes", 1000, "nodes of each cluster")
	flags.IntVar(&o.cold, "cold", 500_000, "nodes of the cold simulation")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "how long each figure is measured")
	flags.IntVar(&o.cores, "cores", 1, "CPUs to use for decisions")
	flags.IntVar(&o.bindings, "bindings", 2000, "bindings to place in a real cell; 0 leaves the cell out")
	flags.IntVar(&o.workloads, "workloads", 5000, "workloads of the cluster that is lost")
	flags.IntVar(&o.writers, "writers", 16, "clients that create workloads")
	flags.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of engine and clients")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(*clusters, ",") {
		count, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || count < 1 {
			return nil, fmt.Errorf("--clusters: %q is not a number of clusters", text)
		}
		o.clusters = append(o.clusters, count)
	}
	if o.nodes < 1 || o.cold < 1 || o.cores < 1 || o.duration <= 0 {
		return nil, fmt.Errorf("--nodes, --cold, --cores and --duration must be above zero")
	}
	if o.bindings < 0 || o.workloads < 1 || o.writers < 1 {
		return nil, fmt.Errorf("--bindings must not be below zero, --workloads and --writers must be above")
	}
	return o, nil
}

func run(ctx context.Context, o *options) error {
	all := runtime.GOMAXPROCS(o.cores)
	defer runtime.GOMAXPROCS(all)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer out.Flush()
	fmt.Fprintf(out, "Decisions on %d CPU(s), simulation cached\n", o.cores)
	fmt.Fprintln(out, "clusters\tnodes\tplacement\tper second\tp50\tp99\t")
	for _, count := range o.clusters {
		world := newWorld(count, o.nodes)
		for _, placement := range placements() {
			figures, err := world.decide(placement, o.duration)
			if err != nil {
				return fmt.Errorf("deciding %s for %d clusters: %w", placement.name, count, err)
			}
			fmt.Fprintf(out, "%d\t%d\t%s\t%.0f\t%s\t%s\t\n", count, count*o.nodes, placement.name, figures.perSecond, figures.p50, figures.p99)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	cold, err := simulateCold(o.cold)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nSimulation of one pod against %d nodes, cold\t%s\t\n", o.cold, cold.plain.Round(100*time.Microsecond))
	fmt.Fprintf(out, "The same with spreading over zones and nodes\t%s\t\n", cold.spread.Round(100*time.Microsecond))
	fmt.Fprintf(out, "Memory of the node model, by node\t%d bytes\t\n", cold.bytesPerNode)
	if o.bindings == 0 {
		return nil
	}
	if err := out.Flush(); err != nil {
		return err
	}
	runtime.GOMAXPROCS(all)
	return measureCell(ctx, o, out)
}
