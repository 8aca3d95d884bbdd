// Package cellcheck compares the stores of all cells with the topology: every federated object must be in exactly one
// cell, its owner, and its backup cell must have a current copy.
//
// It reads while objects are written and copied. A finding counts only if it persists.
package cellcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/backup"
	"github.com/cellplane/cellplane/internal/slots"
)

// Problem is what is wrong with an object.
type Problem string

// The problems.
const (
	// NoCopy means that its backup cell has no copy of it.
	NoCopy Problem = "its backup cell has no copy"
	// OldCopy means that the copy differs.
	OldCopy Problem = "its copy differs"
	// NeedlessCopy means that there is a copy but no object, or that the copy is in the wrong cell.
	NeedlessCopy Problem = "there is a copy without an object"
	// Doubled means that it is in two cells.
	Doubled Problem = "it is in two cells"
	// Misplaced means that it is in a cell that does not own its slot.
	Misplaced Problem = "it is in a cell that does not own it"
)

// Finding is a problem of one object.
type Finding struct {
	// Problem is what is wrong.
	Problem Problem
	// Key of the object, without the prefix of the store.
	Key string
	// Cell has, or had, the object. Other is its backup cell, or the other cell that has it.
	Cell, Other string
}

// String returns the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s (%s, %s)", f.Key, f.Problem, f.Cell, f.Other)
}

// Report is the result of a check.
type Report struct {
	// Objects, Copies and StaleCopies count federated objects, their copies in backup cells, and stale copies of moves.
	Objects, Copies, StaleCopies int
	// Outdated counts everything that is stored under another key for encryption at rest than the first, or not encrypted although it should be.
	Outdated int
	// Findings are in the order of their keys.
	Findings []Finding
}

// pause is the time between two passes.
const pause = 100 * time.Millisecond

// Check compares all stores, by name of the cell, with a topology. It repeats that until nothing is found or settle
// has passed. Objects may be written meanwhile: a copy is good once it equals any version that the object has had
// since the copy was found outdated.
func Check(ctx context.Context, topology *slots.Map, stores map[string]*cellstore.Store, settle time.Duration) (Report, error) {
	deadline := time.Now().Add(settle)
	behind := lateness{}
	for {
		report, err := once(ctx, topology, stores, behind)
		if err != nil || len(report.Findings) == 0 || time.Now().After(deadline) {
			return report, err
		}
		select {
		case <-ctx.Done():
			return report, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// lateness holds, for each outdated copy, the hashes of the versions of its object since. An empty set means that the
// copy has caught up.
type lateness map[Finding]map[uint64]struct{}

// caughtUp records the current version of an object, and reports whether its copy has caught up.
func (l lateness) caughtUp(finding Finding, stored, kept cellstore.KV) bool {
	since, known := l[finding]
	if !known {
		since = map[uint64]struct{}{}
		l[finding] = since
	} else if len(since) == 0 {
		return true
	}
	since[xxhash.Sum64(stored.Value)] = struct{}{}
	if _, found := since[xxhash.Sum64(kept.Value)]; !found || kept.ModRevision == 0 {
		return false
	}
	clear(since)
	return true
}

// check is one pass over all stores.
type check struct {
	topology *slots.Map
	stores   map[string]*cellstore.Store
	behind   lateness
	report   Report

	owners map[string]slots.Index            // of each object
	wanted map[slots.Index]map[string]copied // by backup cell, then cell + "/" + key
}

// copied is an expected copy.
type copied struct {
	cell string
	sum  uint64
}

func once(ctx context.Context, topology *slots.Map, stores map[string]*cellstore.Store, behind lateness) (Report, error) {
	c := newCheck(topology, stores, behind)
	if err := c.read(ctx); err != nil {
		return Report{}, err
	}
	if err := c.confirm(ctx); err != nil {
		return Report{}, err
	}
	slices.SortFunc(c.report.Findings, func(a, b Finding) int { return strings.Compare(a.String(), b.String()) })
	return c.report, nil
}

func newCheck(topology *slots.Map, stores map[string]*cellstore.Store, behind lateness) *check {
	return &check{topology: topology, stores: stores, behind: behind, owners: map[string]slots.Index{}, wanted: map[slots.Index]map[string]copied{}}
}

// read reads all objects, then all copies.
func (c *check) read(ctx context.Context) error {
	for i := range c.topology.Cells() {
		if err := c.objects(ctx, slots.Index(i)); err != nil {
			return err
		}
	}
	for i := range c.topology.Cells() {
		if err := c.copies(ctx, slots.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) store(i slots.Index) *cellstore.Store {
	if c.topology.Cell(i).State == slots.Failed {
		return nil
	}
	return c.stores[c.topology.Name(i)]
}

// objects reads the objects of a cell.
func (c *check) objects(ctx context.Context, cell slots.Index) error {
	store := c.store(cell)
	if store == nil {
		return nil
	}
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return err
		}
		if kv.Outdated {
			c.report.Outdated++
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			continue // no API object
		}
		class, slot := cellstore.Classify(object)
		if !class.Federated() {
			continue
		}
		key, _ := store.Relative(kv.Key)
		c.object(cell, key, object, slot, kv.Value)
	}
	return nil
}

func (c *check) object(cell slots.Index, key string, object *cellstore.Object, slot slots.Slot, value []byte) {
	route, status := c.topology.Route(slot), object.Labels[names.RebalanceStatusLabel]
	if status == names.RebalanceMigrated {
		c.report.StaleCopies++
		return
	}
	c.report.Objects++
	if cell != route.Old && cell != route.New {
		c.find(Misplaced, key, c.topology.Name(cell), c.topology.Name(route.New))
		return
	}
	if other, twice := c.owners[key]; twice && status == "" {
		c.find(Doubled, key, c.topology.Name(cell), c.topology.Name(other))
	}
	if status == "" {
		c.owners[key] = cell
	}
	backupCell := backup.CellFor(c.topology, cell, object)
	if backupCell == slots.None {
		return
	}
	if c.wanted[backupCell] == nil {
		c.wanted[backupCell] = map[string]copied{}
	}
	name := c.topology.Name(cell)
	c.wanted[backupCell][name+"/"+key] = copied{name, xxhash.Sum64(value)}
}

// copies reads the copies that a cell has of others.
func (c *check) copies(ctx context.Context, backupCell slots.Index) error {
	store, wanted := c.store(backupCell), c.wanted[backupCell]
	if store == nil {
		return nil
	}
	name := c.topology.Name(backupCell)
	for kv, err := range store.Range(ctx, backup.Root, 0) {
		if err != nil {
			return err
		}
		if kv.Outdated {
			c.report.Outdated++
		}
		full := strings.TrimPrefix(kv.Key, backup.Root)
		cell, key, _ := strings.Cut(full, "/")
		if i, member := c.topology.Index(cell); member && c.topology.Cell(i).State == slots.Failed {
			continue // it will be promoted
		}
		c.report.Copies++
		want, needed := wanted[full]
		delete(wanted, full)
		switch {
		case !needed:
			c.find(NeedlessCopy, key, cell, name)
		case want.sum != xxhash.Sum64(kv.Value):
			c.find(OldCopy, key, cell, name)
		}
	}
	for full, want := range wanted {
		c.find(NoCopy, strings.TrimPrefix(full, want.cell+"/"), want.cell, name)
	}
	return nil
}

func (c *check) find(problem Problem, key, cell, other string) {
	c.report.Findings = append(c.report.Findings, Finding{Problem: problem, Key: key, Cell: cell, Other: other})
}

// confirm drops findings that have disappeared since the object or the copy was read.
func (c *check) confirm(ctx context.Context) error {
	var confirmed []Finding
	for _, finding := range c.report.Findings {
		persists, err := c.persists(ctx, finding)
		if err != nil {
			return err
		}
		if persists {
			confirmed = append(confirmed, finding)
		}
	}
	c.report.Findings = confirmed
	return nil
}

func (c *check) persists(ctx context.Context, finding Finding) (bool, error) {
	source, backupCell := c.stores[finding.Cell], c.stores[finding.Other]
	if finding.Problem == Doubled || finding.Problem == Misplaced || backupCell == nil {
		return true, nil
	}
	kept, _, err := backupCell.Get(ctx, backup.Root+finding.Cell+"/"+finding.Key)
	if err != nil {
		return false, err
	}
	switch there := kept.ModRevision != 0; {
	case there && finding.Problem == NoCopy: // it was made meanwhile
		c.report.Copies++
	case !there && finding.Problem != NoCopy: // it was removed meanwhile
		c.report.Copies--
	}
	if source == nil {
		return finding.Problem == NeedlessCopy && kept.ModRevision != 0, nil
	}
	stored, _, err := source.Get(ctx, source.Key(finding.Key))
	if err != nil {
		return false, err
	}
	if finding.Problem == NeedlessCopy {
		return kept.ModRevision != 0, nil
	}
	return stored.ModRevision != 0 && !c.behind.caughtUp(finding, stored, kept), nil
}
