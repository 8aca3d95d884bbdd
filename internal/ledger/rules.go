package ledger

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/simulate"
)

// maxReservations bounds the size of the object. A full ledger refuses reservations until pods run.
const maxReservations = 4096

// terms are the holder and the expiry of new reservations.
type terms struct {
	holder  string
	now     time.Time
	expires time.Time
}

// reserve applies claims to a ledger and to the model of its free capacity. It returns nil or a refusal for each
// claim.
func reserve(l *cellplanev1alpha1.ClusterLedger, free *simulate.Model, claims []Claim, t terms) []*Refusal {
	refusals := make([]*Refusal, len(claims))
	for i := range claims {
		if claims[i].More > 0 {
			refusals[i] = add(l, free, &claims[i], t)
		} else {
			release(l, &claims[i])
		}
	}
	return refusals
}

// add reserves capacity for more pods.
func add(l *cellplanev1alpha1.ClusterLedger, free *simulate.Model, claim *Claim, t terms) *Refusal {
	at := find(l, claim)
	refusal := &Refusal{Cluster: claim.Cluster, Asked: claim.More}
	if at < 0 && len(l.Reservations) >= maxReservations {
		return refusal
	}
	fit := free.Fit(claim.Pod.Ordinals(int64(claim.Total-claim.More), int64(claim.More)))
	missing := int64(claim.More)
	switch {
	case fit.Total() >= missing:
	case claim.Waits && fit.Total() > 0:
		missing = fit.Total()
	case claim.Waits:
		return nil
	default:
		refusal.Left = int32(fit.Total())
		return refusal
	}
	if at < 0 {
		l.Reservations = append(l.Reservations, cellplanev1alpha1.Reservation{Workload: claim.Workload, Component: claim.Component})
		at = len(l.Reservations) - 1
	}
	r := &l.Reservations[at]
	r.Holder, r.Total, r.Expires = t.holder, claim.Total, metav1.NewTime(t.expires)
	r.Requests, r.PriorityClass = larger(r.Requests, claim.Pod.Requests), claim.Pod.PriorityClass()
	// Existing nodes come first: it is unknown when others are added.
	slices.SortStableFunc(fit.Classes, func(a, b simulate.ClassFit) int { return cmp.Compare(asInt(a.Potential), asInt(b.Potential)) })
	for _, c := range fit.Classes {
		here := min(missing, c.Replicas)
		expect(r, c.Class, int32(here))
		free.Take(c.Class, claim.Pod.Requests, here)
		free.UseQuota(r.Workload.Namespace, r.PriorityClass, claim.Pod.Requests, here)
		missing -= here
	}
	return nil
}

// release reduces a reservation.
func release(l *cellplanev1alpha1.ClusterLedger, claim *Claim) {
	at := find(l, claim)
	if at < 0 {
		return
	}
	r := &l.Reservations[at]
	r.Total = claim.Total
	lower(r, min(outstanding(r)+int64(claim.More), int64(claim.Total)))
	dropEmpty(l)
}

// restore adds a reservation made while the hub was unreachable, regardless of capacity.
func restore(l *cellplanev1alpha1.ClusterLedger, reserved *cellplanev1alpha1.Reservation) {
	at := find(l, &Claim{Workload: reserved.Workload, Component: reserved.Component})
	switch {
	case at < 0:
		l.Reservations = append(l.Reservations, *reserved.DeepCopy())
	case outstanding(&l.Reservations[at]) < outstanding(reserved) || l.Reservations[at].Total < reserved.Total:
		l.Reservations[at] = *reserved.DeepCopy()
	}
}

// Observation is the observed state of a cluster.
type Observation struct {
	// Classes are its nodes.
	Classes []cellplanev1alpha1.LedgerNodeClass
	// Volumes are those that not all nodes can reach.
	Volumes []cellplanev1alpha1.LedgerVolumes
	// StorageClasses are those whose volumes not all nodes can reach.
	StorageClasses []cellplanev1alpha1.LedgerStorageClass
	// Quotas are what the quotas of namespaces leave to pods.
	Quotas []cellplanev1alpha1.LedgerQuota
	// Pods are the pods of workloads. Missing workloads are unknown.
	Pods map[cellplanev1alpha1.WorkloadReference]simulate.PodCount
	// Holders are all that may make reservations.
	Holders []string
}

// Refresh updates a ledger with an observation: it sets the nodes and ends reservations whose pods run or that
// expired. It reports whether the ledger changed.
func Refresh(l *cellplanev1alpha1.ClusterLedger, seen *Observation, now time.Time) bool {
	before := l.DeepCopy()
	l.Holders = seen.Holders
	for i := range l.Reservations {
		r := &l.Reservations[i]
		pods, known := seen.Pods[r.Workload]
		switch {
		case !now.Before(r.Expires.Time):
			lower(r, 0)
		case known && r.Component == "":
			lower(r, int64(max(0, r.Total-pods.Bound)))
		}
	}
	dropEmpty(l)
	quotas := withoutWaiting(seen.Quotas, l.Reservations, seen.Pods)
	nodesChanged := !equality.Semantic.DeepEqual(l.Classes, seen.Classes) || !equality.Semantic.DeepEqual(l.Volumes, seen.Volumes) || !equality.Semantic.DeepEqual(l.StorageClasses, seen.StorageClasses)
	if nodesChanged || !equality.Semantic.DeepEqual(l.Quotas, quotas) {
		l.Classes, l.Volumes, l.StorageClasses, l.Quotas = seen.Classes, seen.Volumes, seen.StorageClasses, quotas
		l.Revision++
		l.ObservedAt = metav1.NewTime(now)
	}
	if nodesChanged {
		reassign(l)
	}
	return !equality.Semantic.DeepEqual(before, l)
}

// withoutWaiting returns quotas without what pods use that exist, have no node yet and have a reservation: the reservation counts.
func withoutWaiting(quotas []cellplanev1alpha1.LedgerQuota, reservations []cellplanev1alpha1.Reservation, pods map[cellplanev1alpha1.WorkloadReference]simulate.PodCount) []cellplanev1alpha1.LedgerQuota {
	if len(quotas) == 0 || len(reservations) == 0 {
		return quotas
	}
	m := modelOf(&cellplanev1alpha1.ClusterLedger{Quotas: quotas})
	for i := range reservations {
		r := &reservations[i]
		m.UseQuota(r.Workload.Namespace, r.PriorityClass, r.Requests, -min(outstanding(r), int64(pods[r.Workload].Waiting)))
	}
	return quotasOf(m)
}

// reassign moves reservations whose class of nodes is gone to other classes, for example when a potential node was
// added and has another class now.
func reassign(l *cellplanev1alpha1.ClusterLedger) {
	free := modelOf(l)
	for i := range l.Reservations {
		r := &l.Reservations[i]
		unassigned := int64(0)
		for j := range r.Pods {
			pods := &r.Pods[j]
			stay := min(int64(pods.Count), free.CapacityIn(pods.Class, r.Requests))
			unassigned += int64(pods.Count) - stay
			pods.Count = int32(stay)
			free.Take(pods.Class, r.Requests, stay)
		}
		last := ""
		if len(r.Pods) > 0 {
			last = r.Pods[0].Class
		}
		for j := range l.Classes {
			if c := &l.Classes[j]; unassigned > 0 {
				here := min(unassigned, free.CapacityIn(c.Name, r.Requests))
				expect(r, c.Name, int32(here))
				free.Take(c.Name, r.Requests, here)
				unassigned -= here
			}
		}
		if unassigned > 0 {
			expect(r, last, int32(unassigned)) // stays reserved on an unknown node
		}
		r.Pods = slices.DeleteFunc(r.Pods, func(p cellplanev1alpha1.ReservedPods) bool { return p.Count == 0 })
	}
}

// dropInvalid removes invalid reservations and describes them. The next write stores the ledger without them.
func dropInvalid(l *cellplanev1alpha1.ClusterLedger) []string {
	var faults []string
	l.Reservations = slices.DeleteFunc(l.Reservations, func(r cellplanev1alpha1.Reservation) bool {
		if r.Unreadable != "" {
			faults = append(faults, r.Unreadable)
		}
		return r.Unreadable != ""
	})
	return faults
}

// invalidNodes describes the invalid nodes in a ledger.
func invalidNodes(l *cellplanev1alpha1.ClusterLedger) []string {
	var faults []string
	for i := range l.Classes {
		for j := range l.Classes[i].Nodes {
			if fault := l.Classes[i].Nodes[j].Unreadable; fault != "" {
				faults = append(faults, fault)
			}
		}
	}
	return faults
}

func find(l *cellplanev1alpha1.ClusterLedger, claim *Claim) int {
	return slices.IndexFunc(l.Reservations, func(r cellplanev1alpha1.Reservation) bool {
		return r.Workload == claim.Workload && r.Component == claim.Component
	})
}

// outstanding returns the number of reserved pods that do not run yet.
func outstanding(r *cellplanev1alpha1.Reservation) int64 {
	sum := int64(0)
	for i := range r.Pods {
		sum += int64(r.Pods[i].Count)
	}
	return sum
}

func expect(r *cellplanev1alpha1.Reservation, class string, count int32) {
	if count <= 0 {
		return
	}
	for i := range r.Pods {
		if r.Pods[i].Class == class {
			r.Pods[i].Count += count
			return
		}
	}
	r.Pods = append(r.Pods, cellplanev1alpha1.ReservedPods{Class: class, Count: count})
}

// lower reduces the reserved pods to the given number, from the last class on.
func lower(r *cellplanev1alpha1.Reservation, most int64) {
	excess := outstanding(r) - max(0, most)
	for i := len(r.Pods) - 1; i >= 0 && excess > 0; i-- {
		going := min(excess, int64(r.Pods[i].Count))
		r.Pods[i].Count -= int32(going)
		excess -= going
	}
}

// dropEmpty removes reservations without pods.
func dropEmpty(l *cellplanev1alpha1.ClusterLedger) {
	for i := range l.Reservations {
		r := &l.Reservations[i]
		r.Pods = slices.DeleteFunc(r.Pods, func(p cellplanev1alpha1.ReservedPods) bool { return p.Count == 0 })
	}
	l.Reservations = slices.DeleteFunc(l.Reservations, func(r cellplanev1alpha1.Reservation) bool { return len(r.Pods) == 0 })
}

// larger returns the larger request of each resource: pods of an old and a new template may start at the same time.
func larger(a, b corev1.ResourceList) corev1.ResourceList {
	if len(a) == 0 {
		return b
	}
	both := maps.Clone(a)
	for name, quantity := range b {
		if was, has := both[name]; !has || was.Cmp(quantity) < 0 {
			both[name] = quantity
		}
	}
	return both
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// replicas converts a count to the type that estimators return.
func replicas(count int64) int32 { return int32(min(count, math.MaxInt32)) }
