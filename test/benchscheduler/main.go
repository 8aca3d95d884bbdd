// Command benchscheduler measures the scheduler without a federation: how many placements are decided in a second for
// federations of different sizes, how long a cold simulation takes, and what a node costs in memory.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
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
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(o)
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
	flags.IntVar(&o.cores, "cores", 1, "processors to use")
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
	return o, nil
}

func run(o *options) error {
	runtime.GOMAXPROCS(o.cores)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer out.Flush()
	fmt.Fprintf(out, "Decisions on %d processor(s), simulation cached\n", o.cores)
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
	return nil
}
