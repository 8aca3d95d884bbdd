package clustercache

import (
	"context"
	"errors"
	"strconv"

	"github.com/cespare/xxhash/v2"

	objectversion "github.com/cellplane/cellplane/internal/position"
)

// Revision is a state of an object in its member, which a client has written or read there.
type Revision struct {
	// Cluster is the member, or empty for one of the federation's own objects.
	Cluster string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	// Name is the object's name.
	Name string
	// Version is the object's resourceVersion in the member.
	Version string
	// Deleted is set if the revision may be that of the object's deletion.
	Deleted bool
}

// ErrNotShown is returned for a revision that the Store will not show soon: its member is not watched at present, or another object of the
// name is shown.
var ErrNotShown = errors.New("the revision is not shown")

// VersionOf waits until the Store has a revision of an object or a later one, and returns the version under which it shows the revision. Of
// one that was never shown, since a list of the member had a later one already, it returns the position before the later one: a watch that
// begins there misses nothing, and no object has this version. The error is ErrNotShown or that of the context.
func (s *Store) VersionOf(ctx context.Context, r Revision) (uint64, error) {
	b := &s.broadcast
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	for {
		wake := b.wakeup()
		n, found, err := s.eventOfRevision(r)
		if err != nil {
			return 0, err
		}
		if found {
			return s.options.Incarnation.version(n), nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// eventOfRevision returns the event with which a revision was shown. found is false if the Store has not got it yet.
func (s *Store) eventOfRevision(r Revision) (n uint64, found bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.clusters[r.Cluster]
	if s.closed || c == nil || !c.fed || !c.stale.IsZero() {
		return 0, false, ErrNotShown
	}
	k := s.findKey([]byte(r.Namespace), s.qualified([]byte(r.Name), r.Cluster))
	if k == 0 {
		return 0, false, nil
	}
	p := newPast(r)
	for id := s.keys.At(k).head; id != 0; id = s.entries.At(id).next {
		if e := s.entries.At(id); e.terms.cluster == c.id {
			p.add(e)
		}
	}
	return p.event()
}

// past is what the entries of an object say about a revision of it.
type past struct {
	Revision
	// version and hashed are those of an entry of the revision.
	version uint64
	hashed  bool

	// exact is the last event with which the revision was shown, next the first that showed a later one, and died the last that ended an
	// earlier one; 0 if there is none.
	exact, next, died uint64
	// hidden is set if an entry of the revision, or of a later one, is not shown, and present if the object exists.
	hidden, present bool
}

func newPast(r Revision) *past {
	p := &past{Revision: r}
	p.version, p.hashed = numberOf([]byte(r.Version))
	return p
}

func (p *past) add(e *entry) {
	if e.died == never {
		p.present = true
	}
	later := !e.hashed && !p.hashed && e.version > p.version
	switch same := p.is(e); {
	case (same || later) && e.born == unborn:
		p.hidden = true
	case same:
		p.exact = max(p.exact, e.born)
	case later && (p.next == 0 || e.born < p.next):
		p.next = e.born
	case !later && e.died != never:
		p.died = max(p.died, e.died)
	}
}

// is reports whether an entry is of the revision. The version of one of the federation's own objects begins with the number of the change by
// which its cell got it, and this may have been different when the object was read: see package position.
func (p *past) is(e *entry) bool {
	if e.hashed != p.hashed || p.hashed || p.Cluster != templatesName {
		return e.hashed == p.hashed && e.version == p.version
	}
	a, err := objectversion.ParseVersion(strconv.FormatUint(e.version, 10))
	b, errOther := objectversion.ParseVersion(p.Revision.Version)
	if err != nil || errOther != nil {
		return e.version == p.version
	}
	return a.Cell == b.Cell && a.Revision == b.Revision
}

// event returns the event of the revision.
func (p *past) event() (n uint64, found bool, err error) {
	switch {
	case p.exact != 0:
		return p.exact, true, nil
	case p.next != 0:
		return p.next - 1, true, nil
	case p.hidden:
		return 0, false, ErrNotShown
	case p.died != 0 && !p.present && p.Deleted:
		return p.died, true, nil
	case p.died != 0 && !p.present:
		return p.died - 1, true, nil
	}
	return 0, false, nil
}

// numberOf returns the number that stands for a resourceVersion: its own, or a hash if it is none.
func numberOf(version []byte) (number uint64, hashed bool) {
	number, err := strconv.ParseUint(string(version), 10, 64)
	if err != nil || strconv.FormatUint(number, 10) != string(version) {
		return xxhash.Sum64(version), true
	}
	return number, false
}
