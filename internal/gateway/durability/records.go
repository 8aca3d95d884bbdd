package durability

import (
	"sync"
	"time"

	"github.com/cellplane/cellplane/internal/durability"
	"github.com/cellplane/cellplane/internal/slots"
)

// renewedWithin is how old the last change of a record may be while the backup works. It is renewed every two seconds.
const renewedWithin = 8 * time.Second

// records are what the backup cells have received.
type records struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every change
	// cells are the backup cells by name.
	cells map[string]*received
}

// received is what one backup cell has received.
type received struct {
	// since is when the records were first read. Nothing is known about how old they were then.
	since time.Time
	// from are the records, by the cell that is backed up.
	from map[string]record
}

type record struct {
	durability.Received
	// renewed is when the record was seen to change, by the clock of this gateway; zero if it was not.
	renewed time.Time
}

func (r *records) init() {
	if r.changed == nil {
		r.changed, r.cells = make(chan struct{}), map[string]*received{}
	}
}

// await returns a channel that is closed with the next change.
func (r *records) await() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	return r.changed
}

func (r *records) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// set takes all records of a backup cell.
func (r *records) set(cell string, all []durability.Received, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	before := r.cells[cell]
	next := &received{since: now, from: map[string]record{}}
	if before != nil {
		next.since = before.since
	}
	for _, one := range all {
		next.from[one.Source] = record{Received: one}
		if before != nil {
			next.from[one.Source] = before.from[one.Source].next(one, now)
		}
	}
	r.cells[cell] = next
	r.notify()
}

// next returns the record after this one. One that was known before is not a renewal.
func (r record) next(one durability.Received, now time.Time) record {
	if r.Received == one {
		return r
	}
	return record{one, now}
}

// isRenewed reports whether the record was renewed lately.
func (r record) isRenewed(now time.Time) bool {
	return !r.renewed.IsZero() && now.Sub(r.renewed) < renewedWithin
}

// update takes one record of a backup cell.
func (r *records) update(cell string, one durability.Received, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	if known := r.cells[cell]; known != nil {
		known.from[one.Source] = known.from[one.Source].next(one, now)
		r.notify()
	}
}

// remove forgets a record.
func (r *records) remove(cell, source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	if known := r.cells[cell]; known != nil {
		delete(known.from, source)
		r.notify()
	}
}

// forget forgets a backup cell.
func (r *records) forget(cell string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.init()
	delete(r.cells, cell)
	r.notify()
}

// inUse reports whether an object of a cell may have the annotation. Only a record of this topology that is renewed shows that none has: others
// tell of former times.
func (r *records) inUse(source string, epoch int64, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	unused := false
	for _, cell := range r.cells {
		record, found := cell.from[source]
		if found && record.InUse {
			return true
		}
		unused = unused || found && record.Epoch >= epoch && record.isRenewed(now)
	}
	return !unused
}

// standing is whether a backup cell receives the objects of a slot.
type standing int

const (
	// absent: no cell is known to have copies of the slot.
	absent standing = iota
	// silent: one has, and its record is not renewed.
	silent
	// undecided: one has, and it is not known yet whether its record is renewed.
	undecided
	// renewed: one has, and its record is renewed.
	renewed
)

// topologies returns the topologies from an epoch to the latest, nil if they are not all known.
type topologies func(epoch int64) []*slots.Map

// standing returns whether a backup cell receives the objects of a slot in a cell, and which one.
func (r *records) standing(since topologies, source string, slot slots.Slot, now time.Time) (best standing, where string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, cell := range r.cells {
		record, found := cell.from[source]
		if !found || !covers(since(record.Epoch), source, name, slot) {
			continue
		}
		this := silent
		switch {
		case record.isRenewed(now):
			this = renewed
		case now.Sub(cell.since) < renewedWithin:
			this = undecided
		}
		if this > best {
			best, where = this, name
		}
	}
	return best, where
}

// has reports whether a backup cell has everything that was written to a slot in a cell up to a revision.
func (r *records) has(since topologies, source string, slot slots.Slot, revision int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, cell := range r.cells {
		if record, found := cell.from[source]; found && record.Revision >= revision && covers(since(record.Epoch), source, name, slot) {
			return true
		}
	}
	return false
}

// covers reports whether a cell has been the backup cell of a slot's objects in another cell in all of some topologies.
// A cell that has failed in one of them may have another store since, whose revisions mean something else.
func covers(maps []*slots.Map, source, target string, slot slots.Slot) bool {
	for _, m := range maps {
		cell, member := m.Index(source)
		if !member || m.Cell(cell).State == slots.Failed || m.Name(m.Route(slot).BackupOf(cell)) != target {
			return false
		}
	}
	return len(maps) > 0
}
