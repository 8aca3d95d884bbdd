package ledger

import (
	"sync"
	"time"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Account is a compiled ledger. It is immutable and safe for concurrent use.
type Account struct {
	ledger *cellplanev1alpha1.ClusterLedger
	nodes  *simulate.Model // as observed
	free   *simulate.Model // without reserved capacity
	fits   sync.Map        // pod key → simulate.Fit
}

// Open compiles a ledger, which must not change afterwards. It reuses the compiled nodes of an earlier account if
// they are the same.
func Open(l *cellplanev1alpha1.ClusterLedger, before *Account, now time.Time) *Account {
	a := &Account{ledger: l}
	if before != nil && before.ledger.UID == l.UID && before.ledger.Revision == l.Revision {
		a.nodes = before.nodes
	} else {
		a.nodes = modelOf(l)
	}
	a.free = withoutReservations(a.nodes, l, now)
	return a
}

// Capacity returns how many more of a pod fit.
func (a *Account) Capacity(pod *simulate.Pod) simulate.Fit {
	if known, ok := a.fits.Load(pod.Key); ok {
		return known.(simulate.Fit)
	}
	fit := a.free.Fit(pod)
	a.fits.Store(pod.Key, fit)
	return fit
}

// Known reports whether the cluster's nodes are known.
func (a *Account) Known() bool { return a != nil && len(a.ledger.Classes) > 0 }

func modelOf(l *cellplanev1alpha1.ClusterLedger) *simulate.Model {
	m := simulate.NewModel()
	for i := range l.Classes {
		c := &l.Classes[i]
		described := simulate.Class{Name: c.Name, Labels: c.Labels, Taints: c.Taints, Allocatable: c.Allocatable, Potential: c.Potential}
		for j := range c.Nodes {
			m.AddNodes(described, c.Nodes[j].Free, int(c.Nodes[j].Count))
		}
	}
	for i := range l.Volumes {
		v := &l.Volumes[i]
		m.AddVolumes(simulate.Volumes{Reach: &v.Reach, Mode: v.AccessMode, Claims: v.Claims})
	}
	for i := range l.StorageClasses {
		c := &l.StorageClasses[i]
		m.AddStorageClass(simulate.StorageClass{Name: c.Name, Default: c.Default, Reach: &c.Reach})
	}
	for i := range l.Quotas {
		q := &l.Quotas[i]
		m.AddQuota(simulate.Quota{Namespace: q.Namespace, Scopes: q.Scopes, Left: q.Left})
	}
	return m
}

func withoutReservations(nodes *simulate.Model, l *cellplanev1alpha1.ClusterLedger, now time.Time) *simulate.Model {
	if len(l.Reservations) == 0 {
		return nodes
	}
	free := nodes.Clone()
	for i := range l.Reservations {
		if r := &l.Reservations[i]; now.Before(r.Expires.Time) {
			take(free, r)
		}
	}
	return free
}

func take(free *simulate.Model, r *cellplanev1alpha1.Reservation) {
	for j := range r.Pods {
		free.Take(r.Pods[j].Class, r.Requests, int64(r.Pods[j].Count))
	}
	free.UseQuota(r.Workload.Namespace, r.PriorityClass, r.Requests, outstanding(r))
}
