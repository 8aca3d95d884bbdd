package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/quorum"
	"github.com/cellplane/cellplane/internal/slots"
)

// WriterLeases ends the writer leases of gateways at earlier epochs: see package quorum.
type WriterLeases struct {
	// RaiseHub raises the floor of the hub.
	RaiseHub func(ctx context.Context, epoch int64) error
	// InForce returns the cells of the last topology in force, nil if they are not known.
	InForce func(ctx context.Context) ([]string, error)
	// RaiseCell raises the floor of a cell, in its store.
	RaiseCell func(ctx context.Context, cell string, epoch int64) error
	// Reports returns the reports of the gateways.
	Reports func(ctx context.Context) ([]Report, error)
}

// floorTimeout is how long a cell may take to raise its floor.
const floorTimeout = 5 * time.Second

// endLeases raises the floors, and returns the time at which no gateway can hold a lease at an earlier epoch any more. Floors of failed
// cells that nobody has taken over yet are raised where these can be reached.
func (t *Takeover) endLeases(ctx context.Context, topology *slots.Map) (ended time.Time, err error) {
	l := t.Leases
	pending, stopped, err := t.pending(ctx, topology)
	if err != nil {
		return time.Time{}, err
	}
	inForce, err := l.InForce(ctx)
	if err != nil {
		return time.Time{}, err
	}
	voters := quorum.Voters(quorum.CellsOf(topology))
	raised := make([]error, len(voters)+len(pending))
	var group errgroup.Group
	for i, cell := range append(voters, pending...) {
		if cell == quorum.Hub {
			continue
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, floorTimeout)
			defer cancel()
			raised[i] = l.RaiseCell(ctx, cell, topology.Epoch())
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	for i, cell := range voters {
		if raised[i] != nil {
			return time.Time{}, fmt.Errorf("the takeover waits for cell %s: %w", cell, raised[i])
		}
	}
	if err := l.RaiseHub(ctx, topology.Epoch()); err != nil {
		return time.Time{}, err
	}
	// A gateway may raise the length of its lease only after it has reported that, so what is read now holds for every lease at an
	// earlier epoch.
	reports, err := l.Reports(ctx)
	if err != nil {
		return time.Time{}, err
	}
	isRaised := func(cell string) bool {
		i := slices.Index(pending, cell)
		return i < 0 || raised[len(voters)+i] == nil || slices.Contains(stopped, cell)
	}
	if !quorum.Raised(quorum.CellsOf(topology), inForce, pending, isRaised) {
		return time.Time{}, fmt.Errorf("cells %s have failed at once and do not answer: gateways that still reach them could be writing; "+
			"let one of them answer, or stop them and annotate their Cells with %s=true", strings.Join(pending, ", "), names.StoppedAnnotation)
	}
	return time.Now().Add(quorum.Wait(longestLease(reports))), nil
}

// pending returns the failed cells whose share nobody has taken over yet, and which of them an operator has stopped.
func (t *Takeover) pending(ctx context.Context, topology *slots.Map) (pending, stopped []string, err error) {
	for i := range topology.Cells() {
		listed := topology.Cell(slots.Index(i))
		if listed.State != slots.Failed {
			continue
		}
		cell := &cellplanev1alpha1.Cell{}
		if err := t.Fresh.Get(ctx, types.NamespacedName{Name: listed.Name}, cell); err != nil {
			return nil, nil, fmt.Errorf("reading the failed cell %s: %w", listed.Name, err)
		}
		if meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellPromoted) && !isReadmitted(cell) {
			continue
		}
		pending = append(pending, listed.Name)
		if cell.Annotations[names.StoppedAnnotation] == "true" {
			stopped = append(stopped, listed.Name)
		}
	}
	return pending, stopped, nil
}

const (
	// reachTimeout is how long the store of a failed cell may take to answer.
	reachTimeout = 6 * time.Second
	// tailTimeout is how long one attempt to copy the tail of a failed cell may take. The next one continues.
	tailTimeout = 2 * time.Minute
)

// copyTail copies what a failed cell holds and its backup does not, if its store still answers. Nothing that was acknowledged is stored in
// it any more, so a failover of a cell that can be reached loses nothing.
func (t *Takeover) copyTail(ctx context.Context, failed string) error {
	revision, err := t.revision(ctx, failed)
	if err != nil {
		klog.FromContext(ctx).Info("the store of a failed cell does not answer; what its backup has is promoted", "cell", failed, "err", err.Error())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	err = t.Copied(ctx, failed, revision)
	if errors.Is(err, backup.ErrReplaced) {
		klog.FromContext(ctx).Info("the store of a failed cell was replaced; what its backup has is promoted", "cell", failed, "err", err.Error())
		return nil
	}
	if err != nil {
		return fmt.Errorf("the store of the failed cell %s answers, and what it holds is not copied yet: %w", failed, err)
	}
	return nil
}

func (t *Takeover) revision(ctx context.Context, cell string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	store, err := t.Open(ctx, cell)
	if err != nil {
		return 0, err
	}
	return store.Revision(ctx)
}

func waitUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}
