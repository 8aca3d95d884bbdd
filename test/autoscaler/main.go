// Command autoscaler compares the decisions of package autoscale with those of Kubernetes' own controller in random
// scenarios. With -write it records what the controller decides, for the test of package scenario.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cellplane/cellplane/internal/autoscale/scenario"
)

// recorded is the file with the decisions of the controller.
const recorded = "internal/autoscale/scenario/testdata/replicas.txt"

func main() {
	first := flag.Uint64("first", 0, "the number of the first scenario")
	count := flag.Uint64("count", 5000, "how many scenarios")
	write := flag.Bool("write", false, "write what the controller decides to "+recorded)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *first, *count, *write)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "autoscaler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, first, count uint64, write bool) (err error) {
	dir, err := os.MkdirTemp("", "cellplane-autoscaler-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := os.Create(filepath.Join(dir, "scenarios"))
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	for i := range count {
		if err := encoder.Encode(scenario.New(first + i)); err != nil {
			return err
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	decisions, err := controller(ctx, dir, file.Name())
	if err != nil {
		return err
	}
	if uint64(len(decisions)) != count {
		return fmt.Errorf("the controller decided %d of %d scenarios", len(decisions), count)
	}
	if write {
		return record(decisions)
	}
	return compare(first, decisions)
}

// controller runs Kubernetes' controller and returns its decisions in each scenario.
func controller(ctx context.Context, dir, scenarios string) ([][]int32, error) {
	program := filepath.Join(dir, "autoscaler.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./autoscaler")
	build.Dir = "test/conformance/suite"
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the control planes are built: most packages are the same
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building Kubernetes' controller: %w", err)
	}
	if out, err := exec.CommandContext(ctx, program, "-scenarios", scenarios).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("running Kubernetes' controller: %w\n%s", err, out[max(0, len(out)-4096):])
	}
	results, err := os.Open(scenarios + ".out")
	if err != nil {
		return nil, err
	}
	defer results.Close()
	var all [][]int32
	for lines := bufio.NewScanner(results); lines.Scan(); {
		var replicas []int32
		if err := json.Unmarshal(lines.Bytes(), &replicas); err != nil {
			return nil, err
		}
		all = append(all, replicas)
	}
	return all, nil
}

// record writes a line per scenario, with the replicas after each step.
func record(decisions [][]int32) error {
	var text strings.Builder
	for _, replicas := range decisions {
		fmt.Fprintln(&text, strings.Trim(fmt.Sprint(replicas), "[]"))
	}
	return os.WriteFile(recorded, []byte(text.String()), 0o644)
}

// compare reports the scenarios in which the decisions differ.
func compare(first uint64, decisions [][]int32) error {
	different, changes := 0, 0
	for i, want := range decisions {
		number := first + uint64(i)
		got, err := scenario.New(number).Run(1 + i%5)
		if err != nil {
			return fmt.Errorf("scenario %d: %w", number, err)
		}
		if !slices.Equal(got, want) {
			different++
			fmt.Printf("scenario %d: got %v, the controller decides %v\n", number, got, want)
		}
		changes += len(slices.Compact(slices.Clone(want))) - 1
	}
	fmt.Printf("%d scenarios, %d changes of replicas\n", len(decisions), changes)
	if different > 0 {
		return fmt.Errorf("decisions differ in %d scenarios", different)
	}
	return nil
}
