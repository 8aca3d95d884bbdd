// Command conformance runs Kubernetes' own end-to-end tests through the gateway of a local federation with three cells.
// docs/conformance.md lists the specs that do not apply, with the reasons.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// program is the command line, which `make conformance` builds.
const program = "bin/cellplane"

type settings struct {
	focus, surface string
	moving, keep   bool
	seed           uint64
}

func main() {
	var s settings
	flag.StringVar(&s.focus, "focus", "", "run only the specs that match this regular expression")
	flag.StringVar(&s.surface, "surface", "both", "the surface to test: / or /federation or both")
	flag.BoolVar(&s.moving, "moving", false, "add and drain a cell all the time")
	flag.Uint64Var(&s.seed, "seed", 1, "the seed of the schedule with -moving")
	flag.BoolVar(&s.keep, "keep", false, "keep the federation and the reports")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	surfaces := map[string][]string{"/": {"/"}, "/federation": {"/federation"}, "both": {"/", "/federation"}}[s.surface]
	if surfaces == nil {
		return fmt.Errorf("-surface is / or /federation or both, not %q", s.surface)
	}
	dir, err := os.MkdirTemp("", "cellplane-conformance-")
	if err != nil {
		return err
	}
	suite, err := buildSuite(ctx, dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	f := federation{program: program, dir: filepath.Join(dir, "federation")}
	if s.keep {
		fmt.Println("The reports and the federation are kept in", dir)
	} else {
		defer func() { err = errors.Join(err, f.purge(), os.RemoveAll(dir)) }()
	}
	if err := f.start(ctx); err != nil {
		return err
	}
	if s.moving {
		stop, failure := f.move(ctx, s.seed)
		if failure != nil {
			return failure
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	failed := 0
	for _, surface := range surfaces {
		config, err := f.kubeconfig(surface)
		if err != nil {
			return err
		}
		report, err := suite.run(ctx, config, surface, s.focus)
		if err != nil {
			return err
		}
		report.print(os.Stdout, surface)
		failed += len(report.failed)
	}
	if failed > 0 {
		return fmt.Errorf("%d specs failed", failed)
	}
	return nil
}
