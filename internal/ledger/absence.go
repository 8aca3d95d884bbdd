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

// absence is what is promised about a cluster while the hub is away. It counts on a share of the nodes that no other
// holder counts on.
type absence struct {
	ledger  *cellplanev1alpha1.ClusterLedger
	free    *simulate.Model
	account *Account
	made    []cellplanev1alpha1.WorkloadReference
}

// commitAway grants what orders there is room for in this holder's share.
func (d *desk) commitAway(s *Store, batch []*order) []error {
	base := d.account(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if base == nil {
		return make([]error, len(batch))
	}
	if d.absence == nil {
		d.absence = begin(base, s.options.Holder, s.options.Now())
	}
	now, a := s.options.Now(), d.absence
	results := make([]error, len(batch))
	t := terms{holder: s.options.Holder, now: now, expires: now.Add(s.options.Expiry)}
	for i, placed := range batch {
		trial, left := a.ledger.DeepCopy(), a.free.Clone()
		refusals := reserve(trial, left, placed.claims, t)
		if at := slices.IndexFunc(refusals, func(r *Refusal) bool { return r != nil }); at >= 0 {
			refused.Inc()
			results[i] = refusals[at]
			continue
		}
		a.ledger, a.free = trial, left
		for j := range placed.claims {
			a.made = append(a.made, placed.claims[j].Workload)
		}
	}
	a.account = &Account{ledger: a.ledger, nodes: a.free, free: a.free}
	return results
}

// begin returns a share of what an account has free.
func begin(base *Account, holder string, now time.Time) *absence {
	holders := slices.Clone(base.ledger.Holders)
	if !slices.Contains(holders, holder) {
		holders = append(holders, holder)
	}
	slices.Sort(holders)
	free := withoutPromises(base.nodes.Clone(), base.ledger, now)
	free.Share(slices.Index(holders, holder), len(holders))
	return &absence{ledger: base.ledger.DeepCopy(), free: free}
}

// reconcilePause is how long the hub is left alone between attempts to reach it.
const reconcilePause = time.Second

// reconcile brings promises to the hub that were made while it was away.
func (s *Store) reconcile(ctx context.Context) {
	ticker := time.NewTicker(reconcilePause)
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
		if err := s.comeBack(ctx); err != nil {
			klog.FromContext(ctx).V(1).Info("the hub is still away", "since", s.Away(), "err", err)
		}
	}
}

// comeBack ends an absence, if the hub answers: new promises go to the hub again once it has all the others.
func (s *Store) comeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*s.options.RequestTimeout)
	defer cancel()
	list := &cellplanev1alpha1.ClusterLedgerList{}
	if err := s.client.Get().Resource(resourceName).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Into(list); err != nil {
		return err
	}
	s.mu.Lock()
	desks := make([]*desk, 0, len(s.desks))
	for _, d := range s.desks {
		desks = append(desks, d)
	}
	s.mu.Unlock()
	errs := make([]error, len(desks))
	var all sync.WaitGroup
	for i, d := range desks {
		all.Go(func() { errs[i] = d.bringBack(ctx, s) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.noteHub(true)
	for _, d := range desks {
		// What was promised between the two steps is brought now, with new promises already going to the hub.
		if err := d.bringBack(ctx, s); err != nil {
			s.noteHub(false)
			return err
		}
	}
	return nil
}

// bringBack writes what was promised in an absence.
func (d *desk) bringBack(ctx context.Context, s *Store) error {
	for {
		promises, latest := d.absent()
		if promises == nil {
			return nil
		}
		if latest == nil {
			d.forget()
			return nil
		}
		l := latest.DeepCopy()
		for i := range promises {
			restore(l, &promises[i])
		}
		err := d.swap(ctx, s, l)
		if errors.Is(err, errOvertaken) {
			continue
		}
		if err != nil {
			return err
		}
		if d.settled(promises) {
			return nil
		}
	}
}

// absent returns the promises of an absence and the ledger that they are missing in. Without promises it ends at once.
func (d *desk) absent() ([]cellplanev1alpha1.Reservation, *cellplanev1alpha1.ClusterLedger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.absence == nil {
		return nil, nil
	}
	var promises []cellplanev1alpha1.Reservation
	for i := range d.absence.ledger.Reservations {
		if r := &d.absence.ledger.Reservations[i]; slices.Contains(d.absence.made, r.Workload) {
			promises = append(promises, *r.DeepCopy())
		}
	}
	if len(promises) == 0 {
		d.absence = nil
	}
	return promises, d.ledger
}

// settled ends an absence if nothing was promised since these promises were read.
func (d *desk) settled(brought []cellplanev1alpha1.Reservation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.absence == nil {
		return true
	}
	count := 0
	for i := range d.absence.ledger.Reservations {
		r := &d.absence.ledger.Reservations[i]
		if !slices.Contains(d.absence.made, r.Workload) {
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
	d.absence = nil
	return true
}
