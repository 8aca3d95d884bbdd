package main

import (
	"context"
	"fmt"
	"time"
)

// The targets for the loss of the active engine.
const (
	takeoverTarget       = 5  // s until the next Deployment has landed
	takeoverWritesTarget = 99 // the Deployment's own included
)

// takeover kills the active engine and creates a Deployment at the same time.
func (b *bench) takeover(ctx context.Context) (*section, error) {
	s := &section{Title: fmt.Sprintf("kill -9 of the active engine with %d workloads, %d times", b.workloads, b.options.kills)}
	var landed []time.Duration
	var writes, memberWrites float64
	for i := range b.options.kills {
		took, spent, inMembers, err := b.killOnce(ctx, numbered("after-kill", i))
		if err != nil {
			return nil, err
		}
		landed = append(landed, took)
		memberWrites = max(memberWrites, inMembers.total())
		if spent.total() >= writes {
			writes, s.Writes, s.WritesEach = spent.total(), spent, "of the costliest takeover"
		}
	}
	s.add("until the next Deployment is in all members, best", percentile(landed, 0).Seconds(), unitSeconds)
	s.add("until the next Deployment is in all members, worst", percentile(landed, 1).Seconds(), unitSeconds).atMost(takeoverTarget)
	s.add("writes to the cell until quiet, that Deployment's included, worst", writes, "").atMost(takeoverWritesTarget)
	s.add("writes of Deployments in all members, that Deployment's included, worst", memberWrites, "").atMost(memberCount)
	return s, nil
}

// killOnce returns how long the other engine takes to propagate a new Deployment to all members, and what is written.
func (b *bench) killOnce(ctx context.Context, name string) (landed time.Duration, writes, inMembers requests, err error) {
	active, _, err := b.engines.roles(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	before, err := b.ledger.read(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	membersBefore, err := b.ledger.memberWrites(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	if err := active.Kill(); err != nil {
		return 0, nil, nil, err
	}
	wave, err := b.createMany(ctx, name, 1, 1)
	if err != nil {
		return 0, nil, nil, err
	}
	if err := active.back(ctx); err != nil {
		return 0, nil, nil, err
	}
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	membersAfter, err := b.ledger.memberWrites(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	return wave.timings().allPresent, after.writes.since(before.writes), membersAfter.since(membersBefore), nil
}

const (
	idlePeriod = 500 * time.Millisecond
	idleShare  = 0.1 // of a core
	idleFor    = 4 * time.Second
)

// fullRestart is a restart with as many workloads as the options say.
func (b *bench) fullRestart(ctx context.Context) (*section, error) {
	missing := b.options.restart - b.workloads
	if missing <= 0 {
		return b.restart(ctx)
	}
	made, err := b.makeIdle(ctx, missing)
	if err != nil {
		return nil, err
	}
	s, err := b.restart(ctx)
	if err != nil {
		return nil, err
	}
	s.Title += fmt.Sprintf(", %d of them paused and without replicas", missing)
	s.Figures = append(made.Figures, s.Figures...)
	return s, nil
}

// idlePortion is the number of workloads between two progress messages.
const idlePortion = 1000

// makeIdle propagates many workloads that do nothing in the members. The standby engine is stopped meanwhile to save
// CPU.
func (b *bench) makeIdle(ctx context.Context, n int) (*section, error) {
	_, standby, err := b.engines.roles(ctx)
	if err != nil {
		return nil, err
	}
	if err := standby.halt(ctx); err != nil {
		return nil, err
	}
	empty, err := b.ledger.footprint(ctx)
	if err != nil {
		return nil, err
	}
	before, err := b.ledger.planesCPU()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for made := 0; made < n; {
		portion := min(idlePortion, n-made)
		progress("creating %d more, paused and without replicas; %d of %d exist", portion, made, n)
		if _, err := b.createMany(ctx, numbered("idle", made), portion, 0); err != nil {
			return nil, err
		}
		made += portion
	}
	took := time.Since(began)
	after, err := b.ledger.planesCPU()
	if err != nil {
		return nil, err
	}
	full, err := b.ledger.footprint(ctx)
	if err != nil {
		return nil, err
	}
	s := &section{}
	s.add("making them: from the first request to the last status", took.Seconds(), unitSeconds)
	s.add("… CPU of the cell's API server and etcd, each", (after[cpuAPIServer]+after[cpuEtcd]-before[cpuAPIServer]-before[cpuEtcd]).Seconds()/float64(n), unitSeconds)
	s.add("… CPU of the members, each", (after[cpuMembers]-before[cpuMembers]).Seconds()/float64(n), unitSeconds)
	s.addFootprint(empty, full, n)
	return s, nil
}

// restart stops both engines and starts them with all workloads in place.
func (b *bench) restart(ctx context.Context) (*section, error) {
	before, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	membersBefore, err := b.ledger.memberWrites(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.engines.stop(); err != nil {
		return nil, err
	}
	progress("starting both engines again")
	start := time.Now()
	if err := b.engines.start(ctx); err != nil {
		return nil, err
	}
	leading := time.Since(start)
	if err := b.untilIdle(ctx); err != nil {
		return nil, err
	}
	quiet := time.Since(start) - idleFor
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	membersAfter, err := b.ledger.memberWrites(ctx)
	if err != nil {
		return nil, err
	}
	s := &section{Title: fmt.Sprintf("Restart of both engines with %d workloads", b.workloads)}
	s.Writes, s.WritesEach = after.writes.since(before.writes), "in all"
	s.add("until both are ready and one leads", leading.Seconds(), unitSeconds)
	s.add("until both are quiet", quiet.Seconds(), unitSeconds)
	s.add("CPU of both engines", (after.cpu[cpuActive] + after.cpu[cpuStandby]).Seconds(), unitSeconds)
	s.add("writes to the cell", s.Writes.total(), "").Target = "about 0"
	s.add("writes of Deployments in all members", membersAfter.since(membersBefore).total(), "").atMost(0)
	if _, err := b.addActiveMemory(ctx, s); err != nil {
		return nil, err
	}
	wave, err := b.createMany(ctx, "after-restart", 1, 1)
	if err != nil {
		return nil, err
	}
	s.add("next Deployment → present in all members", milliseconds(wave.timings().allPresent), unitMilliseconds)
	return s, nil
}

// untilIdle returns when the engines have used hardly any CPU for idleFor.
func (b *bench) untilIdle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	ticker := time.NewTicker(idlePeriod)
	defer ticker.Stop()
	used := func() (cpu time.Duration) {
		for _, one := range b.engines.all {
			cpu += one.Status(ctx).CPU
		}
		return cpu
	}
	last, busy := used(), time.Now()
	for time.Since(busy) < idleFor {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engines do not become quiet: %w", ctx.Err())
		case <-ticker.C:
		}
		now := used()
		if (now - last).Seconds() > idleShare*idlePeriod.Seconds() {
			busy = time.Now()
		}
		last = now
	}
	return nil
}
