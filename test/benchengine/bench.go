package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
)

// bench runs the phases of the benchmark one after the other.
type bench struct {
	options   *options
	fed       *federation
	engines   *engines
	ledger    *ledger
	tracker   *tracker
	templates appsclient.DeploymentInterface
	report    report

	workloads int     // Deployments that exist
	restCPU   float64 // cores that the cell uses when nothing happens
	emptyRSS  int64   // of the active engine, before there were any
}

// phase is a part of the benchmark.
type phase struct {
	name string
	run  func(context.Context) (*section, error)
}

func newBench(ctx context.Context, o *options, f *federation, e *engines) (*bench, error) {
	b := &bench{options: o, fed: f, engines: e, templates: f.cell.client.AppsV1().Deployments(benchNamespace)}
	b.report.Settings = map[string]int{"workloads": o.workloads, "sequential": o.sequential, "writers": o.writers, "kills": o.kills, "members": memberCount, "nodes": nodeCount}
	var err error
	if b.ledger, err = newLedger(ctx, f, e); err != nil {
		return nil, err
	}
	if b.tracker, err = track(ctx, f); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bench) run(ctx context.Context) error {
	if err := b.warmUp(ctx); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	phases := []phase{
		{"resting", b.rest},
		{"writing ConfigMaps", b.bare},
		{"creating one by one", b.latency},
		{"creating at once", b.throughput},
		{"updating images", b.update},
		{"reading memory", b.memory},
	}
	if b.options.kills > 0 {
		phases = append(phases, phase{"killing the active engine", b.takeover}, phase{"restarting both engines", b.restart})
	}
	phases = append(phases, phase{"deleting everything", b.cleanUp})
	if b.options.full {
		phases = []phase{{"restarting both engines", b.fullRestart}}
	}
	if b.options.rollouts > 0 {
		phases = []phase{{"updating a Deployment with divided replicas", b.rollouts}}
	}
	for _, phase := range phases {
		progress("%s", phase.name)
		s, err := phase.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		s.print(os.Stdout)
		b.report.Sections = append(b.report.Sections, s)
		if b.options.out == "" {
			continue
		}
		if err := b.report.save(b.options.out); err != nil {
			return err
		}
	}
	return nil
}

// warmUp propagates one Deployment, so that namespaces, caches and connections exist before anything is measured.
func (b *bench) warmUp(ctx context.Context) error {
	progress("warming up")
	active, _, err := b.engines.roles(ctx)
	if err != nil {
		return err
	}
	b.emptyRSS = active.Status(ctx).RSS
	cell, err := b.fed.objects()
	if err != nil {
		return err
	}
	if err := cell.Create(ctx, everywhere()); err != nil {
		return err
	}
	if _, err := b.createMany(ctx, "warm-up", 1, 1); err != nil {
		return err
	}
	_, err = b.ledger.settle(ctx)
	return err
}

// create creates a Deployment and starts its clock.
func (b *bench) create(ctx context.Context, wave *wave, name string, replicas int32) error {
	wave.begin(name, firstImage, replicas)
	if _, err := b.templates.Create(ctx, deployment(name, replicas), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	return nil
}

// createMany creates Deployments concurrently and waits for their status.
func (b *bench) createMany(ctx context.Context, prefix string, n int, replicas int32) (*wave, error) {
	wave := b.tracker.newWave(n)
	err := b.parallel(ctx, n, func(ctx context.Context, i int) error {
		return b.create(ctx, wave, numbered(prefix, i), replicas)
	})
	if err != nil {
		return nil, err
	}
	b.workloads += n
	return wave, wave.untilReported(ctx)
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s-%05d", prefix, i) }

// parallel calls a function for 0 … n-1 from as many writers as the options say, roughly in order.
func (b *bench) parallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range min(b.options.writers, n) {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
