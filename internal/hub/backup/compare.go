package backup

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cellplane/cellplane/internal/slots"
)

// comparison brings a keeper to what the source was at a revision, but for copies that it should no longer have.
type comparison struct {
	pair *pair
	// kept are the sums of the copies that have not been met in the source.
	kept map[string]uint64
	w    writer
	err  error
}

// compare compares several keepers in one pass over the source: reading and parsing it is most of the work. What goes wrong with one of
// them is for that one alone.
func (s *source) compare(ctx context.Context, pairs map[slots.Index]*pair, revision int64) map[slots.Index]*comparison {
	all := map[slots.Index]*comparison{}
	var loading sync.WaitGroup
	for i, p := range pairs {
		c := &comparison{pair: p, w: writer{pair: p}}
		all[i] = c
		loading.Go(func() { c.err = c.load(ctx) })
	}
	loading.Wait()
	if err := s.meet(ctx, all, revision); err != nil {
		for _, c := range all {
			c.err = err
		}
		return all
	}
	for i, c := range all {
		if c.err == nil {
			c.err = c.w.flush(ctx)
		}
		if c.err == nil {
			c.err = c.pair.vouch(ctx, scopeOf(s.topology, s.cell, i), revision)
		}
	}
	return all
}

// meet shows each keeper what it should have of the source as it was at a revision.
func (s *source) meet(ctx context.Context, all map[slots.Index]*comparison, revision int64) error {
	for kv, err := range s.store.Range(ctx, s.store.Prefix(), revision) {
		if err != nil {
			return err
		}
		relative, _ := s.store.Relative(kv.Key)
		keeper, kept := s.keeperOf(ctx, relative, kv.Value)
		if c := all[keeper]; c != nil && kept && c.err == nil {
			c.err = c.meet(ctx, relative, kv.Value)
		}
	}
	return nil
}

// answersWithin is how long a keeper may take for its first answer. One that takes longer is not waited for by others.
const answersWithin = 2 * time.Second

// load reads what the keeper has.
func (c *comparison) load(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	if _, err := c.pair.keeper.Revision(first); err != nil {
		return err
	}
	// Nothing that was sent earlier comes after what is read here.
	if err := c.pair.claim(ctx); err != nil {
		return err
	}
	c.kept = map[string]uint64{}
	prefix := Prefix(c.pair.source)
	for kv, err := range c.pair.keeper.Range(ctx, prefix, 0) {
		if err != nil {
			return err
		}
		c.kept[kv.Key[len(prefix):]] = xxhash.Sum64(kv.Value)
	}
	return nil
}

// meet has the keeper have a copy.
func (c *comparison) meet(ctx context.Context, key string, value []byte) error {
	sum, found := c.kept[key]
	delete(c.kept, key)
	if found && sum == xxhash.Sum64(value) {
		return nil
	}
	return c.w.put(ctx, key, value)
}

// stale returns the keys of copies that the keeper should not have.
func (c *comparison) stale() []string { return slices.Collect(maps.Keys(c.kept)) }
