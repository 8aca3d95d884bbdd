package backup

import (
	"context"
	"fmt"
	"time"

	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// proofInterval is how often a proof is begun.
	proofInterval = 2 * time.Second
	// proofTimeout is how long the store of a cell may take to tell its revision.
	proofTimeout = 3 * time.Second
	// hangs is how long a write to a backup cell may take before the cell counts as one that does not answer.
	hangs = 4 * time.Second
)

// proof is a revision of the source that was read, by a consistent read, after a moment. Once the backup cell has
// confirmed everything up to the revision, it has proved that it had at that moment what the source had.
type proof struct {
	revision int64
	at       time.Time
}

// maxProofs is how many proofs a pair waits for. The newest are of the most use.
const maxProofs = 16

// prove begins proofs until the context ends.
func (s *source) prove(ctx context.Context, pairs map[slots.Index]*pair) error {
	ticker := time.NewTicker(proofInterval)
	defer ticker.Stop()
	for {
		began, reached := time.Now(), s.reached()
		limited, cancel := context.WithTimeout(ctx, proofTimeout)
		revision, err := s.store.Revision(limited)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		s.read(began, err)
		if err == nil && revision < reached {
			return fmt.Errorf("%w: it is at revision %d, and was at %d", ErrReplaced, revision, reached)
		}
		if err == nil {
			for _, p := range pairs {
				p.expect(proof{revision, began})
			}
			s.ask()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// read records the outcome of an attempt to read the source that began at a time.
func (s *source) read(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.unread = time.Time{}
	case s.unread.IsZero():
		s.unread = began
	}
}

// expect has the pair confirm a proof.
func (p *pair) expect(next proof) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proofs = append(p.proofs, next); len(p.proofs) > maxProofs {
		p.proofs = p.proofs[1:]
	}
}

// provable reports whether a confirmation of everything up to a revision would prove more.
func (p *pair) provable(revision int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.proofs) > 0 && p.proofs[0].revision <= revision
}

// confirm records that the backup cell has confirmed everything up to a revision.
func (p *pair) confirm(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.proofs) > 0 && p.proofs[0].revision <= revision {
		p.proven, p.proofs = p.proofs[0].at, p.proofs[1:]
	}
}

// attempt records that a write to the backup cell begins. The function it returns records how it ended.
func (p *pair) attempt() func(err error) {
	began := p.now()
	p.mu.Lock()
	p.attempted = began
	p.mu.Unlock()
	return func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attempted, p.problem = time.Time{}, problemOf(err)
		switch {
		case err == nil:
			p.unanswered = time.Time{}
		case p.unanswered.IsZero():
			p.unanswered = began
		}
	}
}

// silence returns since when the backup cell does not answer; zero if it does.
func (p *pair) silence() time.Time {
	switch {
	case !p.unanswered.IsZero():
		return p.unanswered
	case !p.attempted.IsZero() && p.now().Sub(p.attempted) > hangs:
		return p.attempted
	default:
		return time.Time{}
	}
}
