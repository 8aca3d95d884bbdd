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

// comparison brings a backup cell to the state of the source at a revision, except for stale copies.
type comparison struct {
	pair *pair
	// kept are the hashes of the copies that have not been found in the source yet.
	kept map[string]uint64
	w    writer
	// full, if not nil, is why copies that the backup cell lacks are not written, and lacking is set if there are any.
	full    error
	lacking bool
	err     error
}

// compare compares several backup cells in one pass over the source: reading and parsing it is most of the work. An
// error of one of them does not affect the others.
func (s *source) compare(ctx context.Context, pairs map[slots.Index]*pair, revision int64) map[slots.Index]*comparison {
	all := map[slots.Index]*comparison{}
	var loading sync.WaitGroup
	for i, p := range pairs {
		c := &comparison{pair: p, w: writer{pair: p}}
		all[i] = c
		loading.Go(func() {
			c.full = s.roomIn(p.target.Cell)
			if c.err = s.checkKeys(ctx, p.target); c.err == nil {
				c.err = c.load(ctx)
			}
			if c.err == nil {
				c.err = s.check(ctx, p.target)
			}
		})
	}
	loading.Wait()
	if failed(all) {
		return all
	}
	if err := s.compareWith(ctx, all, revision); err != nil {
		for _, c := range all {
			c.err = err
		}
		return all
	}
	for i, c := range all {
		if c.err == nil {
			c.err = c.w.flush(ctx)
		}
		if c.err == nil && c.lacking {
			c.err = c.full
		}
		if c.err == nil {
			c.err = c.pair.setScope(ctx, s.scope(i), revision)
		}
	}
	return all
}

// failed reports whether no comparison is left, so that the source need not be read.
func failed(all map[slots.Index]*comparison) bool {
	for _, c := range all {
		if c.err == nil {
			return false
		}
	}
	return true
}

// compareWith passes each object of the source, as of a revision, to the comparison of its backup cell.
func (s *source) compareWith(ctx context.Context, all map[slots.Index]*comparison, revision int64) error {
	for kv, err := range s.store.Range(ctx, s.store.Prefix(), revision) {
		if err != nil {
			return err
		}
		relative, _ := s.store.Relative(kv.Key)
		target, kept := s.backupCell(ctx, relative, kv.Value)
		if c := all[target]; c != nil && kept && c.err == nil {
			c.err = c.compare(ctx, relative, kv.Value)
		}
	}
	return nil
}

// firstTimeout is how long the others wait for the first answer of a backup cell.
const firstTimeout = 2 * time.Second

// load reads the copies of the backup cell.
func (c *comparison) load(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	if _, err := c.pair.target.Revision(first); err != nil {
		return err
	}
	// Requests sent earlier must not be executed after this.
	if err := c.pair.claim(ctx); err != nil {
		return err
	}
	c.kept = map[string]uint64{}
	prefix := Prefix(c.pair.source)
	for kv, err := range c.pair.target.RangeReadable(ctx, prefix) { // what cannot be decrypted is replaced
		if err != nil {
			return err
		}
		c.kept[kv.Key[len(prefix):]] = xxhash.Sum64(kv.Value)
	}
	return nil
}

// compare writes a copy that is missing or differs.
func (c *comparison) compare(ctx context.Context, key string, value []byte) error {
	sum, found := c.kept[key]
	delete(c.kept, key)
	if found && sum == xxhash.Sum64(value) {
		return nil
	}
	if c.full != nil {
		c.lacking = true
		return nil
	}
	return c.w.put(ctx, key, value)
}

// stale returns the keys of copies that the backup cell should not have.
func (c *comparison) stale() []string { return slices.Collect(maps.Keys(c.kept)) }
