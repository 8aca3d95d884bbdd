package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// The target for the memory of an engine.
const (
	baseMemoryTarget     = 150 << 20
	workloadMemoryTarget = 20 << 10
)

// memory measures the memory of the engines with the workloads of the earlier phases.
func (b *bench) memory(ctx context.Context) (*section, error) {
	s := &section{Title: fmt.Sprintf("Memory of the engines with %d workloads", b.workloads)}
	rss, err := b.addActiveMemory(ctx, s)
	if err != nil {
		return nil, err
	}
	_, standby, err := b.engines.roles(ctx)
	if err != nil {
		return nil, err
	}
	s.add("RSS of the standby engine", mebibytes(standby.Status(ctx).RSS), unitMebibytes)
	s.add("RSS of an engine without workloads", mebibytes(b.emptyRSS), unitMebibytes)
	s.add("growth of the active engine, per workload", float64(rss-b.emptyRSS)/1024/float64(b.workloads), unitKibibytes)
	return s, nil
}

func (b *bench) addActiveMemory(ctx context.Context, s *section) (rss int64, err error) {
	active, _, err := b.engines.roles(ctx)
	if err != nil {
		return 0, err
	}
	status := active.Status(ctx)
	rss = status.RSS
	s.add("RSS of the active engine", mebibytes(rss), unitMebibytes).atMost(mebibytes(baseMemoryTarget + workloadMemoryTarget*int64(b.workloads)))
	program, err := mappedFiles(status.PID)
	if err != nil {
		return 0, err
	}
	s.add("… of which pages of the program's file, which the kernel may drop", mebibytes(program), unitMebibytes)
	return rss, nil
}

// mappedFiles returns the part of a process's memory that is pages of files. It depends less on the program than on the
// kernel's page cache.
func mappedFiles(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return fileMemory(string(content))
}

func fileMemory(status string) (int64, error) {
	_, rest, found := strings.Cut(status, "RssFile:")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 || fields[1] != "kB" {
		return 0, errors.New("the status of the process has no RssFile")
	}
	kibibytes, err := strconv.ParseInt(fields[0], 10, 64)
	return kibibytes << 10, err
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// cleanUp deletes all Deployments and checks that no stale copies are left.
func (b *bench) cleanUp(ctx context.Context) (*section, error) {
	before, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.templates.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	n := len(all.Items)
	start := time.Now()
	err = b.parallel(ctx, n, func(ctx context.Context, i int) error {
		return b.templates.Delete(ctx, all.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if err != nil {
		return nil, err
	}
	if err := b.tracker.untilGone(ctx); err != nil {
		return nil, err
	}
	gone := time.Since(start)
	after, err := b.ledger.settle(ctx)
	if err != nil {
		return nil, err
	}
	left, err := b.leftBehind(ctx)
	if err != nil {
		return nil, err
	}
	s := &section{Title: fmt.Sprintf("Deletion of %d Deployments by %d clients", n, b.options.writers)}
	s.doubtChange(before, after)
	s.Writes, s.WritesEach = after.writes.since(before.writes).of(n), "per Deployment"
	s.add("until all are gone from the cell and all members", gone.Seconds(), unitSeconds)
	s.add("writes to the cell, per Deployment", s.Writes.total(), "")
	s.add("Works and ResourceBindings left behind", float64(left), "").atMost(0)
	return s, nil
}

// leftBehind counts the objects that the engine had created for the Deployments.
func (b *bench) leftBehind(ctx context.Context) (int, error) {
	cell, err := b.fed.objects()
	if err != nil {
		return 0, err
	}
	var works workv1alpha1.WorkList
	if err := cell.List(ctx, &works); err != nil {
		return 0, err
	}
	var bindings workv1alpha2.ResourceBindingList
	if err := cell.List(ctx, &bindings); err != nil {
		return 0, err
	}
	return len(works.Items) + len(bindings.Items), nil
}
