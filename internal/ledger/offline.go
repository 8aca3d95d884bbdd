package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// offline holds the reservations made for a cluster while the hub is unreachable. They use a share of the nodes
// that no other holder uses.
type offline struct {
	ledger  *cellplanev1alpha1.ClusterLedger
	free    *simulate.Model
	account *Account
	made    []cellplanev1alpha1.WorkloadReference
}

// commitOffline grants the requests that fit into this holder's share.
func (d *writer) commitOffline(s *Store, batch []*request) []error {
	base := d.account(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if base == nil {
		return make([]error, len(batch))
	}
	if d.offline == nil {
		d.offline = newOffline(base, s.options.Holder, s.options.Now())
	}
	now, a := s.options.Now(), d.offline
	results := make([]error, len(batch))
	t := terms{holder: s.options.Holder, now: now, expires: now.Add(s.options.Expiry)}
	for i, pending := range batch {
		trial, left := a.ledger.DeepCopy(), a.free.Clone()
		refusals := reserve(trial, left, pending.claims, t)
		if at := slices.IndexFunc(refusals, func(r *Refusal) bool { return r != nil }); at >= 0 {
			refused.Inc()
			results[i] = refusals[at]
			continue
		}
		a.ledger, a.free = trial, left
		for j := range pending.claims {
			a.made = append(a.made, pending.claims[j].Workload)
		}
	}
	a.account = &Account{ledger: a.ledger, nodes: a.free, free: a.free}
	return results
}

// newOffline returns this holder's share of the free capacity.
func newOffline(base *Account, holder string, now time.Time) *offline {
	holders := slices.Clone(base.ledger.Holders)
	if !slices.Contains(holders, holder) {
		holders = append(holders, holder)
	}
	slices.Sort(holders)
	free := withoutReservations(base.nodes.Clone(), base.ledger, now)
	free.Share(slices.Index(holders, holder), len(holders))
	return &offline{ledger: base.ledger.DeepCopy(), free: free}
}

// reconnectInterval is the time between attempts to reach the hub.
const reconnectInterval = time.Second

// reconnectLoop writes reservations made while the hub was unreachable once it is reachable again.
func (s *Store) reconnectLoop(ctx context.Context) {
	ticker := time.NewTicker(reconnectInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s.Away().IsZero() {
			continue
		}
		if err := s.reconnect(ctx); err != nil {
			klog.FromContext(ctx).V(1).Info("the hub is still unreachable", "since", s.Away(), "err", err)
		}
	}
}

// reconnect ends the offline mode if the hub answers: first all offline reservations are written, then new ones go
// to the hub again.
func (s *Store) reconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*s.options.RequestTimeout)
	defer cancel()
	list := &cellplanev1alpha1.ClusterLedgerList{}
	if err := s.client.Get().Resource(resourceName).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Into(list); err != nil {
		return err
	}
	s.mu.Lock()
	writers := make([]*writer, 0, len(s.writers))
	for _, d := range s.writers {
		writers = append(writers, d)
	}
	s.mu.Unlock()
	errs := make([]error, len(writers))
	var all sync.WaitGroup
	for i, d := range writers {
		all.Go(func() { errs[i] = d.flushOffline(ctx, s) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.setReachable(true)
	for _, d := range writers {
		// Write what was reserved between the two steps. New reservations already go to the hub.
		if err := d.flushOffline(ctx, s); err != nil {
			s.setReachable(false)
			return err
		}
	}
	return nil
}

// flushOffline writes the offline reservations.
func (d *writer) flushOffline(ctx context.Context, s *Store) error {
	for {
		reservations, latest := d.offlineReservations()
		if reservations == nil {
			return nil
		}
		if latest == nil {
			d.forget()
			return nil
		}
		l := latest.DeepCopy()
		for i := range reservations {
			restore(l, &reservations[i])
		}
		err := d.swap(ctx, s, l)
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return err
		}
		if d.endOffline(reservations) {
			return nil
		}
	}
}

// offlineReservations returns the offline reservations and the latest known ledger. Without reservations the
// offline mode ends at once.
func (d *writer) offlineReservations() ([]cellplanev1alpha1.Reservation, *cellplanev1alpha1.ClusterLedger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offline == nil {
		return nil, nil
	}
	var reservations []cellplanev1alpha1.Reservation
	for i := range d.offline.ledger.Reservations {
		if r := &d.offline.ledger.Reservations[i]; slices.Contains(d.offline.made, r.Workload) {
			reservations = append(reservations, *r.DeepCopy())
		}
	}
	if len(reservations) == 0 {
		d.offline = nil
	}
	return reservations, d.ledger
}

// endOffline ends the offline mode if nothing was reserved after these reservations were read.
func (d *writer) endOffline(brought []cellplanev1alpha1.Reservation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.offline == nil {
		return true
	}
	count := 0
	for i := range d.offline.ledger.Reservations {
		r := &d.offline.ledger.Reservations[i]
		if !slices.Contains(d.offline.made, r.Workload) {
			continue
		}
		count++
		if !slices.ContainsFunc(brought, func(b cellplanev1alpha1.Reservation) bool {
			return b.Workload == r.Workload && b.Component == r.Component && outstanding(&b) == outstanding(r)
		}) {
			return false
		}
	}
	if count != len(brought) {
		return false
	}
	d.offline = nil
	return true
}
