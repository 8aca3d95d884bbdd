package durability

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// readyWithin is how long a write waits until it is known whether its backup cell works: after a start of the
	// gateway, or a change of topology.
	readyWithin = 3 * time.Second
	// confirmedWithin is how long a write waits for its backup cell, and preferredWithin if it may do without.
	confirmedWithin = 10 * time.Second
	preferredWithin = time.Second
	// markAfter is how long a write waits before the copies are asked for. Usually they are made without that.
	markAfter = 40 * time.Millisecond
)

// Backups knows what backup cells have received.
type Backups struct {
	// Topology provides the cells.
	Topology *topology.Tracker
	// Namespace returns the annotation of a namespace, and whether the namespaces are known.
	Namespace func(name string) (annotation string, known bool)

	records records
	marks   marks
	fences  fences
}

// Run watches the records in all cells until the context ends.
func (b *Backups) Run(ctx context.Context) {
	watched := map[string]*fleet.Upstream{}
	stops := map[string]context.CancelFunc{}
	var watches sync.WaitGroup
	defer watches.Wait()
	var last *topology.View
	for {
		view, found := b.Topology.Await(ctx, func(v *topology.View) bool { return v != last })
		if !found {
			return
		}
		last = view
		present := map[string]*fleet.Upstream{}
		for _, cell := range view.Cells() {
			if int(cell) < len(view.Upstreams) && view.Upstreams[cell] != nil {
				present[view.Name(cell)] = view.Upstreams[cell]
			}
		}
		b.fences.keep(present)
		for name, upstream := range watched {
			if present[name] != upstream {
				stops[name]()
				delete(watched, name)
				if present[name] == nil {
					b.records.forget(name)
				}
			}
		}
		for name, upstream := range present {
			if watched[name] == nil {
				watching, stop := context.WithCancel(ctx)
				watched[name], stops[name] = upstream, stop
				watches.Go(func() {
					defer stop()
					b.watch(watching, name, upstream)
				})
			}
		}
	}
}

// watch reads the records of a backup cell until the context ends.
func (b *Backups) watch(ctx context.Context, cell string, upstream *fleet.Upstream) {
	for ctx.Err() == nil {
		err := b.stream(ctx, cell, upstream)
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("watching what a backup cell has received ended, starting again", "cell", cell, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// OfNamespace returns the mode that a namespace asks for, and whether that is known.
func (b *Backups) OfNamespace(name string) (durability.Mode, bool) {
	annotation, known := b.Namespace(name)
	return durability.Parse(annotation), known
}

// InUse reports whether an object of a cell may have the annotation, in a topology.
func (b *Backups) InUse(view *topology.View, cell slots.Index) bool {
	// Objects bring it with them when they move. Records tell of them a moment later.
	return view.Moving() || b.records.inUse(view.Name(cell), view.Epoch(), time.Now())
}

// errNoBackupCell means that there is no cell with copies of a slot.
var errNoBackupCell = errors.New("no other cell could hold a copy of it; add a cell, or remove the annotation")

// Ready returns nil if a backup cell receives the objects of a slot in a cell. The error says why not.
func (b *Backups) Ready(ctx context.Context, cell string, slot slots.Slot) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		changed := b.records.await()
		best, where := b.records.standing(b.Topology.Since, cell, slot, time.Now())
		switch {
		case best == renewed:
			return nil
		case best == silent:
			return fmt.Errorf("cell %s holds its copy and has confirmed nothing for %v: that cell or the hub manager does not run", where, renewedWithin)
		case best == absent && alone(b.Topology.View(), cell, slot):
			return errNoBackupCell
		}
		select {
		case <-ctx.Done():
			if best == absent {
				return errors.New("the copies in its backup cell are not complete yet")
			}
			return fmt.Errorf("cell %s holds its copy and has not confirmed anything yet", where)
		case <-changed:
		}
	}
}

// alone reports whether no cell backs up the objects of a slot in a cell.
func alone(view *topology.View, cell string, slot slots.Slot) bool {
	if view == nil {
		return false
	}
	i, member := view.Index(cell)
	return member && view.Route(slot).BackupOf(i) == slots.None
}

// Write is a write that a cell has stored.
type Write struct {
	// View is the topology by which it was sent to the Cell.
	View *topology.View
	Cell slots.Index
	Slot slots.Slot
	// Revision of the cell's store that includes it; 0 if it is not known.
	Revision int64
	Mode     durability.Mode
	// Deletes is set if the object is gone.
	Deletes bool
	// AtOnce has the copies be asked for at once, and not only if they take long.
	AtOnce bool
}

// Wait waits until a backup cell has a write.
func (b *Backups) Wait(ctx context.Context, w Write) error {
	limit := confirmedWithin
	if w.Mode == durability.Preferred {
		limit = preferredWithin
	}
	began := time.Now()
	err := b.wait(ctx, w, limit)
	waitSeconds.Observe(time.Since(began).Seconds())
	return err
}

func (b *Backups) wait(ctx context.Context, w Write, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	source := w.View.Name(w.Cell)
	for w.Revision == 0 {
		revision, err := b.Mark(ctx, source)
		if w.Revision, w.AtOnce = revision, false; err == nil {
			break
		}
		w.Revision = 0
		select { // the topology may be changing
		case <-ctx.Done():
			return err
		case <-time.After(markAfter):
		}
	}
	asking := time.NewTimer(markAfter)
	defer asking.Stop()
	if w.AtOnce {
		asking.Reset(0)
	}
	for {
		changed := b.records.await()
		switch {
		case b.records.has(b.Topology.Since, source, w.Slot, w.Revision):
			return nil
		case !w.Deletes && movedAway(b.Topology.View(), w.View, source, w.Slot):
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the backup cell has not confirmed the change within %v", limit)
		case <-changed:
		case <-asking.C:
			go func() { _, _ = b.Mark(ctx, source) }() // without it the copies are made half a second later
		}
	}
}

// movedAway reports whether all objects of a slot have moved to another cell since a write. Both cells have what was
// written then: stale copies stay for hours, and are used should the other cell be lost. They say nothing about
// deletions.
func movedAway(now, then *topology.View, source string, slot slots.Slot) bool {
	if now == nil || now.Epoch() <= then.Epoch() {
		return false
	}
	cell, member := now.Index(source)
	route := now.Locate(slot)
	return member && now.Cell(cell).State != slots.Failed && route.Old != cell && route.New != cell
}
