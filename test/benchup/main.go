// Command benchup measures the start of a local federation of the default size, and its cost when idle.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
)

func main() {
	idle := flag.Duration("idle", 30*time.Second, "idle time before memory is measured")
	flag.Parse()
	if err := run(context.Background(), *idle); err != nil {
		fmt.Fprintln(os.Stderr, "benchup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, idle time.Duration) error {
	binaries, err := kubebin.Ensure(ctx, func(what string, _ int) { fmt.Println("building", what) })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cellplane-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	fmt.Printf("%-34s %8s\n", "start until ready", "seconds")
	for _, what := range []string{"first start", "resumed"} {
		federation, took, err := start(ctx, dir, binaries)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %8.1f   target: under 60\n", what, took.Seconds())
		if what == "resumed" {
			time.Sleep(idle)
			printCost(federation.Status(ctx), idle)
		}
		err = federation.Stop(ctx)
		federation.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func start(ctx context.Context, dir string, binaries kubebin.Binaries) (*local.Federation, time.Duration, error) {
	began := time.Now()
	federation, err := local.Open(filepath.Join(dir, "federation"), local.DefaultSpec, local.Options{Binaries: binaries})
	if err != nil {
		return nil, 0, err
	}
	if err := federation.Start(ctx, func(string) {}); err != nil {
		_ = federation.Stop(ctx)
		return nil, 0, err
	}
	return federation, time.Since(began), nil
}

// printCost sums memory and CPU time by program.
func printCost(processes []process.Status, idle time.Duration) {
	type cost struct {
		count int
		rss   int64
		cpu   time.Duration
	}
	var order []string
	sums := map[string]*cost{}
	add := func(name string, p process.Status) {
		if sums[name] == nil {
			sums[name] = &cost{}
			order = append(order, name)
		}
		sums[name].count++
		sums[name].rss += p.RSS
		sums[name].cpu += p.CPU
	}
	for _, p := range processes {
		add(p.Name[strings.LastIndexByte(p.Name, '/')+1:], p)
	}
	for _, p := range processes {
		add("all", p)
	}
	fmt.Printf("\nafter %s idle\n", idle)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "program\tprocesses\tRSS MiB\tCPU seconds since start\t")
	for _, name := range order {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t\n", name, sums[name].count, sums[name].rss>>20, sums[name].cpu.Seconds())
	}
	_ = w.Flush()
	fmt.Println("target for RSS: under 4096 MiB in all")
}
