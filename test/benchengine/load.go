package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// The targets for a Deployment that goes to three members; events count as writes, and everything in the cell as CPU.
const (
	presentTarget      = 60   // ms
	reportedTarget     = 250  // ms
	createWritesTarget = 14   // requests
	createCPUTarget    = 0.08 // s
	updateWritesTarget = 9    // requests
	updateCPUTarget    = 0.06 // s
)

// pauseBetween separates Deployments that are timed one by one.
const pauseBetween = 100 * time.Millisecond

// restPeriod is how long the idle cell is measured.
const restPeriod = 20 * time.Second

// rest measures what the idle cell uses: long runs with few workloads include it.
func (b *bench) rest(ctx context.Context) (*section, error) {
	before, _, err := b.ledger.cpu(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(restPeriod):
	}
	after, _, err := b.ledger.cpu(ctx)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	s := &section{Title: fmt.Sprintf("At rest with %d workload", b.workloads)}
	for _, account := range cellAccounts {
		cores := (after[account] - before[account]).Seconds() / seconds
		b.restCPU += cores
		s.add(account, 1000*cores, unitMillicores)
	}
	s.add("the cell", 1000*b.restCPU, unitMillicores)
	return s, nil
}

// latency measures Deployments one by one.
func (b *bench) latency(ctx context.Context) (*section, error) {
	n := b.options.sequential
	before, err := b.ledger.read(ctx)
	if err != nil {
		return nil, err
	}
	wave := b.tracker.newWave(n)
	for i := range n {
		if err := b.create(ctx, wave, numbered("one", i), 1); err != nil {
			return nil, err
		}
		err := b.tracker.wait(ctx, "the Deployment has its status", stallBound, func() (bool, string) {
			return wave.reported > i, fmt.Sprintf("%d came through before", wave.reported)
		})
		if err != nil {
			return nil, err
		}
		time.Sleep(pauseBetween)
	}
	b.workloads += n
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	s := &section{Title: fmt.Sprintf("Latency: %d Deployments, one after the other", n)}
	s.doubtChange(before, after)
	t := wave.timings()
	s.add("created → present in all members, p50", milliseconds(percentile(t.present, 0.5)), unitMilliseconds).atMost(presentTarget)
	s.add("created → present in all members, p99", milliseconds(percentile(t.present, 0.99)), unitMilliseconds)
	s.add("created → status on the template, p50", milliseconds(percentile(t.reported, 0.5)), unitMilliseconds).atMost(reportedTarget)
	s.add("created → status on the template, p99", milliseconds(percentile(t.reported, 0.99)), unitMilliseconds)
	s.add("created → ready in all members, p50", milliseconds(percentile(t.ready, 0.5)), unitMilliseconds)
	s.add("ready in the last member → status on the template, p50", milliseconds(percentile(t.lag, 0.5)), unitMilliseconds)
	s.add("fsync of the cell's etcd, mean", 1000*(after.fsyncTime-before.fsyncTime)/(after.fsyncs-before.fsyncs), unitMilliseconds)
	return s, nil
}

// throughput creates many Deployments at once.
func (b *bench) throughput(ctx context.Context) (*section, error) {
	n := b.options.workloads
	before, err := b.ledger.read(ctx)
	if err != nil {
		return nil, err
	}
	wave, err := b.createMany(ctx, "many", n, 1)
	if err != nil {
		return nil, err
	}
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	t := wave.timings()
	s := &section{Title: fmt.Sprintf("Throughput: %d Deployments by %d clients", n, b.options.writers)}
	s.add("present in all members", float64(n)/t.allPresent.Seconds(), "per second").Target = "bound by the members"
	s.add("with their status", float64(n)/t.allReported.Seconds(), "per second").Target = "bound by the members"
	b.addCost(s, before, after, n, createWritesTarget, createCPUTarget)
	return s, nil
}

// update gives all Deployments of throughput a new image.
func (b *bench) update(ctx context.Context) (*section, error) {
	n := b.options.workloads
	before, err := b.ledger.read(ctx)
	if err != nil {
		return nil, err
	}
	wave := b.tracker.newWave(n)
	err = b.parallel(ctx, n, func(ctx context.Context, i int) error {
		wave.begin(numbered("many", i), secondImage, 1)
		return b.updateImage(ctx, numbered("many", i))
	})
	if err != nil {
		return nil, err
	}
	if err := wave.untilReported(ctx); err != nil {
		return nil, err
	}
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	t := wave.timings()
	s := &section{Title: fmt.Sprintf("A new image for %d Deployments, by %d clients", n, b.options.writers)}
	s.add("until all are present in all members", t.allPresent.Seconds(), unitSeconds)
	s.add("until all have their status", t.allReported.Seconds(), unitSeconds)
	b.addCost(s, before, after, n, updateWritesTarget, updateCPUTarget)
	return s, nil
}

func (b *bench) updateImage(ctx context.Context, name string) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, containerName, secondImage)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := b.templates.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("updating %s: %w", name, err)
	}
	return nil
}

// addCost adds the cost of each of n Deployments.
func (b *bench) addCost(s *section, before, after *balance, n int, writesTarget, cpuTarget float64) {
	s.doubtChange(before, after)
	s.Writes, s.WritesEach = after.writes.since(before.writes).of(n), "per Deployment"
	s.add("writes to the cell, per Deployment", s.Writes.total(), "").atMost(writesTarget)
	each := func(account string) float64 {
		return (after.cpu[account] - before.cpu[account]).Seconds() / float64(n)
	}
	total := 0.0
	for _, account := range cellAccounts {
		total += each(account)
	}
	s.add("CPU of the cell, per Deployment", total, unitSeconds).atMost(cpuTarget)
	s.add("… beyond what it uses at rest", total-b.restCPU*after.at.Sub(before.at).Seconds()/float64(n), unitSeconds)
	for _, account := range cellAccounts {
		s.add("… "+account, each(account), unitSeconds)
	}
	s.add("CPU of the members, per Deployment", each(cpuMembers), unitSeconds)
	s.add("bytes sent to the cell's etcd, per Deployment", (after.etcdBytes-before.etcdBytes)/1024/float64(n), unitKibibytes)
}
