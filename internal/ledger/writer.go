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

// writer writes reservations of one cluster. Requests that arrive during a write are batched into the next one.
type writer struct {
	cluster string

	mu      sync.Mutex
	ledger  *cellplanev1alpha1.ClusterLedger // may be nil
	opened  *Account                         // compiled from this or an earlier ledger
	offline *offline                         // nil while the hub has all reservations
	queue   []*request
	writing bool
}

// request is a set of claims that are granted together or not at all.
type request struct {
	claims []Claim
	done   chan error // may be nil
}

// submit writes claims and waits for the result.
func (d *writer) submit(ctx context.Context, s *Store, claims []Claim) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !d.matters(claims) {
		return nil
	}
	pending := &request{claims: claims, done: make(chan error, 1)}
	if d.enqueue(pending) {
		d.write(context.WithoutCancel(ctx), s)
	}
	// A write in progress cannot be cancelled, so wait for it. Every request to the hub has a timeout.
	return <-pending.done
}

// submitAsync writes claims that release capacity without waiting.
func (d *writer) submitAsync(s *Store, claims []Claim) {
	if len(claims) > 0 && d.matters(claims) && d.enqueue(&request{claims: claims}) {
		go d.write(context.Background(), s)
	}
}

// matters reports whether the claims would change anything.
func (d *writer) matters(claims []Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ledger == nil || len(d.ledger.Classes) == 0 {
		return false
	}
	return slices.ContainsFunc(claims, func(c Claim) bool { return c.More > 0 || d.reservedLocked(&c) })
}

func (d *writer) reserved(claim *Claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reservedLocked(claim)
}

func (d *writer) reservedLocked(claim *Claim) bool {
	if d.offline != nil && find(d.offline.ledger, claim) >= 0 {
		return true
	}
	return d.ledger != nil && find(d.ledger, claim) >= 0
}

// enqueue adds a request and reports whether the caller must call write.
func (d *writer) enqueue(pending *request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, pending)
	if d.writing {
		return false
	}
	d.writing = true
	return true
}

// write writes queued requests until the queue is empty.
func (d *writer) write(ctx context.Context, s *Store) {
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

// commit grants a batch of requests with one compare-and-swap. It retries on conflicts.
func (d *writer) commit(ctx context.Context, s *Store, batch []*request) []error {
	for {
		if !s.Away().IsZero() {
			return d.commitOffline(s, batch)
		}
		base := d.account(s)
		if base == nil {
			return make([]error, len(batch)) // the cluster is gone
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
		case errors.Is(err, errConflict):
			conflicts.Inc()
		case isUnreachable(err):
			s.setReachable(false)
		default:
			return slices.Repeat([]error{fmt.Errorf("writing the ledger of cluster %s: %w", d.cluster, err)}, len(batch))
		}
	}
}

// grant adds the requests that fit to the ledger.
func grant(l *cellplanev1alpha1.ClusterLedger, base *Account, batch []*request, t terms) (results []error, changed bool) {
	results = make([]error, len(batch))
	free := withoutReservations(base.nodes.Clone(), l, t.now)
	for i, pending := range batch {
		trial, left := l, free
		if len(pending.claims) > 1 {
			trial, left = l.DeepCopy(), free.Clone()
		}
		refusals := reserve(trial, left, pending.claims, t)
		if at := slices.IndexFunc(refusals, func(r *Refusal) bool { return r != nil }); at >= 0 {
			refused.Inc()
			results[i] = refusals[at]
			continue
		}
		*l, free, changed = *trial, left, true
	}
	return results, changed
}

var errConflict = errors.New("the ledger was changed by another writer")

// swap writes a ledger. If the ledger changed, it reads the new one and returns errConflict.
func (d *writer) swap(ctx context.Context, s *Store, l *cellplanev1alpha1.ClusterLedger) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	written, err := putLedger(ctx, s.client, l)
	if apierrors.IsConflict(err) {
		if written, err = getLedger(ctx, s.client, d.cluster); err == nil {
			s.learn(d, written)
			return errConflict
		}
	}
	if apierrors.IsNotFound(err) {
		d.forget()
		return errConflict
	}
	if err != nil {
		return err
	}
	s.learn(d, written)
	return nil
}

// isUnreachable reports whether an error means that the hub did not answer.
func isUnreachable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := status.Status().Code
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}

// account returns the compiled current ledger, or nil.
func (d *writer) account(s *Store) *Account {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ledger == nil {
		return nil
	}
	if d.offline != nil && !s.Away().IsZero() {
		return d.offline.account
	}
	if d.opened == nil || d.opened.ledger != d.ledger {
		d.opened = Open(d.ledger, d.opened, s.options.Now())
	}
	return d.opened
}

// learn stores a ledger unless a later one is known, and reports whether there may be more free capacity.
func (d *writer) learn(l *cellplanev1alpha1.ClusterLedger) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.ledger
	if before != nil && before.UID == l.UID && version(l) <= version(before) {
		return false
	}
	d.ledger = l
	return before == nil || before.Revision != l.Revision || allOutstanding(l) < allOutstanding(before)
}

func (d *writer) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger, d.opened, d.offline = nil, nil, nil
}

// version returns the resourceVersion as a number. Versions of one API server increase.
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
