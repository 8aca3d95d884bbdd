package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// desk is where promises about one cluster are made. Orders that come while one is being written wait and are written
// together.
type desk struct {
	cluster string

	mu      sync.Mutex
	ledger  *cellplanev1alpha1.ClusterLedger // nil if there is none
	opened  *Account                         // of this or an earlier ledger
	absence *absence                         // nil while the hub has all promises
	queue   []*order
	writing bool
}

// order is claims that are granted together or not at all.
type order struct {
	claims []Claim
	done   chan error // nil if nobody waits
}

// submit has claims written and waits for it.
func (d *desk) submit(ctx context.Context, s *Store, claims []Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !d.matters(claims) {
		return nil
	}
	placed := &order{claims: claims, done: make(chan error, 1)}
	if d.enqueue(placed) {
		d.write(context.WithoutCancel(ctx), s)
	}
	// What is being written cannot be called back, so its end is waited for; every request has a bound.
	return <-placed.done
}

// leave has claims written that give back room, and does not wait.
func (d *desk) leave(s *Store, claims []Claim) {
	if len(claims) > 0 && d.matters(claims) && d.enqueue(&order{claims: claims}) {
		go d.write(context.Background(), s)
	}
}

// matters tells whether the claims would change anything.
func (d *desk) matters(claims []Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ledger == nil || len(d.ledger.Classes) == 0 {
		return false
	}
	return slices.ContainsFunc(claims, func(c Claim) bool { return c.More > 0 || d.promisedLocked(&c) })
}

func (d *desk) promised(claim *Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.promisedLocked(claim)
}

func (d *desk) promisedLocked(claim *Claim) bool {
	if d.absence != nil && find(d.absence.ledger, claim) >= 0 {
		return true
	}
	return d.ledger != nil && find(d.ledger, claim) >= 0
}

// enqueue adds an order and tells whether the caller must write.
func (d *desk) enqueue(placed *order) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, placed)
	if d.writing {
		return false
	}
	d.writing = true
	return true
}

// write writes all orders that there are, until there are none.
func (d *desk) write(ctx context.Context, s *Store) {
	for {
		d.mu.Lock()
		batch := d.queue
		d.queue = nil
		if len(batch) == 0 {
			d.writing = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for i, err := range d.commit(ctx, s, batch) {
			if batch[i].done != nil {
				batch[i].done <- err
			}
		}
	}
}

// commit grants the orders of a batch with one compare-and-swap, again and again until nobody was quicker.
func (d *desk) commit(ctx context.Context, s *Store, batch []*order) []error {
	for {
		if !s.Away().IsZero() {
			return d.commitAway(s, batch)
		}
		base := d.account(s)
		if base == nil {
			return make([]error, len(batch)) // the cluster is gone, and so is all that is known of its room
		}
		now := s.options.Now()
		l := base.ledger.DeepCopy()
		results, changed := grant(l, base, batch, terms{holder: s.options.Holder, now: now, expires: now.Add(s.options.Expiry)})
		if !changed {
			return results
		}
		err := d.swap(ctx, s, l)
		switch {
		case err == nil:
			batchSize.Observe(float64(len(batch)))
			return results
		case errors.Is(err, errOvertaken):
			conflicts.Inc()
		case isAway(err):
			s.noteHub(false)
		default:
			return slices.Repeat([]error{fmt.Errorf("writing the ledger of cluster %s: %w", d.cluster, err)}, len(batch))
		}
	}
}

// grant grants what orders there is room for.
func grant(l *cellplanev1alpha1.ClusterLedger, base *Account, batch []*order, t terms) (results []error, changed bool) {
	results = make([]error, len(batch))
	free := withoutPromises(base.nodes.Clone(), l, t.now)
	for i, placed := range batch {
		trial, left := l, free
		if len(placed.claims) > 1 {
			trial, left = l.DeepCopy(), free.Clone()
		}
		refusals := reserve(trial, left, placed.claims, t)
		if at := slices.IndexFunc(refusals, func(r *Refusal) bool { return r != nil }); at >= 0 {
			refused.Inc()
			results[i] = refusals[at]
			continue
		}
		*l, free, changed = *trial, left, true
	}
	return results, changed
}

var errOvertaken = errors.New("the ledger was changed by another")

// swap writes a ledger if it is still as it was read. If it is not, what it is now is read.
func (d *desk) swap(ctx context.Context, s *Store, l *cellplanev1alpha1.ClusterLedger) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	written, err := putLedger(ctx, s.client, l)
	if apierrors.IsConflict(err) {
		if written, err = getLedger(ctx, s.client, d.cluster); err == nil {
			s.learn(d, written)
			return errOvertaken
		}
	}
	if apierrors.IsNotFound(err) {
		d.forget()
		return errOvertaken
	}
	if err != nil {
		return err
	}
	s.learn(d, written)
	return nil
}

// isAway tells whether an error means that the hub does not answer, rather than what it answers.
func isAway(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// account returns the ledger as it is now, prepared for questions; nil if there is none.
func (d *desk) account(s *Store) *Account {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ledger == nil {
		return nil
	}
	if d.absence != nil && !s.Away().IsZero() {
		return d.absence.account
	}
	if d.opened == nil || d.opened.ledger != d.ledger {
		d.opened = Open(d.ledger, d.opened, s.options.Now())
	}
	return d.opened
}

// learn takes over a ledger unless a later one is known, and tells whether there may be more room now.
func (d *desk) learn(l *cellplanev1alpha1.ClusterLedger) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.ledger
	if before != nil && before.UID == l.UID && version(l) <= version(before) {
		return false
	}
	d.ledger = l
	return before == nil || before.Revision != l.Revision || allOutstanding(l) < allOutstanding(before)
}

func (d *desk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger, d.opened, d.absence = nil, nil, nil
}

// version makes a resourceVersion comparable; those of one API server count upwards.
func version(l *cellplanev1alpha1.ClusterLedger) uint64 {
	counted, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return counted
}

func allOutstanding(l *cellplanev1alpha1.ClusterLedger) int64 {
	sum := int64(0)
	for i := range l.Reservations {
		sum += outstanding(&l.Reservations[i])
	}
	return sum
}
