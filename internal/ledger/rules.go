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

// maxReservations bounds a ledger, so that it stays an object that an API server takes. One that is full refuses more
// until pods run.
const maxReservations = 4096

// terms are on whose behalf and until when promises are made.
type terms struct {
	holder  string
	now     time.Time
	expires time.Time
}

// reserve makes promises in a ledger, which it changes, one after another. It returns for each claim nil or why there
// is no room for it. The model is what is free, and changes with the ledger.
func reserve(l *cellplanev1alpha1.ClusterLedger, free *simulate.Model, claims []Claim, t terms) []*Refusal {
	refusals := make([]*Refusal, len(claims))
	for i := range claims {
		if claims[i].More > 0 {
			refusals[i] = add(l, free, &claims[i], t)
		} else {
			giveBack(l, &claims[i])
		}
	}
	return refusals
}

// add promises room for more pods.
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
	r.Requests = larger(r.Requests, claim.Pod.Requests)
	// Nodes that exist come first: nobody knows when the others do.
	slices.SortStableFunc(fit.Classes, func(a, b simulate.ClassFit) int { return cmp.Compare(asInt(a.Potential), asInt(b.Potential)) })
	for _, c := range fit.Classes {
		here := min(missing, c.Replicas)
		expect(r, c.Class, int32(here))
		free.Take(c.Class, claim.Pod.Requests, here)
		missing -= here
	}
	return nil
}

// giveBack lowers what is promised.
func giveBack(l *cellplanev1alpha1.ClusterLedger, claim *Claim) {
	at := find(l, claim)
	if at < 0 {
		return
	}
	r := &l.Reservations[at]
	r.Total = claim.Total
	lower(r, min(outstanding(r)+int64(claim.More), int64(claim.Total)))
	sweep(l)
}

// restore makes sure that a promise made while the hub was away stands in the ledger, room or not.
func restore(l *cellplanev1alpha1.ClusterLedger, promised *cellplanev1alpha1.Reservation) {
	at := find(l, &Claim{Workload: promised.Workload, Component: promised.Component})
	switch {
	case at < 0:
		l.Reservations = append(l.Reservations, *promised.DeepCopy())
	case outstanding(&l.Reservations[at]) < outstanding(promised) || l.Reservations[at].Total < promised.Total:
		l.Reservations[at] = *promised.DeepCopy()
	}
}

// Observation is how a cluster is seen to be.
type Observation struct {
	// Classes are its nodes.
	Classes []cellplanev1alpha1.LedgerNodeClass
	// Volumes are those that not all nodes can reach.
	Volumes []cellplanev1alpha1.LedgerVolumes
	// StorageClasses are those whose volumes not all nodes can reach.
	StorageClasses []cellplanev1alpha1.LedgerStorageClass
	// Bound counts the pods of workloads that have a node. Workloads that are missing are not known.
	Bound map[cellplanev1alpha1.WorkloadReference]int32
	// Holders are all that may make promises.
	Holders []string
}

// Settle brings a ledger up to date: the nodes, and promises whose pods run or that have expired. It changes the ledger
// and tells whether there was anything to change.
func Settle(l *cellplanev1alpha1.ClusterLedger, seen *Observation, now time.Time) bool {
	before := l.DeepCopy()
	l.Holders = seen.Holders
	if !equality.Semantic.DeepEqual(l.Classes, seen.Classes) || !equality.Semantic.DeepEqual(l.Volumes, seen.Volumes) || !equality.Semantic.DeepEqual(l.StorageClasses, seen.StorageClasses) {
		l.Classes, l.Volumes, l.StorageClasses = seen.Classes, seen.Volumes, seen.StorageClasses
		l.Revision++
		l.ObservedAt = metav1.NewTime(now)
	}
	for i := range l.Reservations {
		r := &l.Reservations[i]
		bound, known := seen.Bound[r.Workload]
		switch {
		case !now.Before(r.Expires.Time):
			lower(r, 0)
		case known && r.Component == "":
			lower(r, int64(max(0, r.Total-bound)))
		}
	}
	sweep(l)
	if l.Revision != before.Revision {
		rehome(l)
	}
	return !equality.Semantic.DeepEqual(before, l)
}

// rehome expects pods on other nodes if those that they were expected on are gone: a node that could be added has been,
// and is of another class now.
func rehome(l *cellplanev1alpha1.ClusterLedger) {
	free := modelOf(l)
	for i := range l.Reservations {
		r := &l.Reservations[i]
		homeless := int64(0)
		for j := range r.Pods {
			pods := &r.Pods[j]
			stay := min(int64(pods.Count), free.RoomIn(pods.Class, r.Requests))
			homeless += int64(pods.Count) - stay
			pods.Count = int32(stay)
			free.Take(pods.Class, r.Requests, stay)
		}
		last := ""
		if len(r.Pods) > 0 {
			last = r.Pods[0].Class
		}
		for j := range l.Classes {
			if c := &l.Classes[j]; homeless > 0 {
				here := min(homeless, free.RoomIn(c.Name, r.Requests))
				expect(r, c.Name, int32(here))
				free.Take(c.Name, r.Requests, here)
				homeless -= here
			}
		}
		if homeless > 0 {
			expect(r, last, int32(homeless)) // it stays promised, though nobody knows where
		}
		r.Pods = slices.DeleteFunc(r.Pods, func(p cellplanev1alpha1.ReservedPods) bool { return p.Count == 0 })
	}
}

// sift leaves out promises that make no sense, and returns what is wrong with them. Nobody can keep them, and what is
// written next is written without them.
func sift(l *cellplanev1alpha1.ClusterLedger) []string {
	var faults []string
	l.Reservations = slices.DeleteFunc(l.Reservations, func(r cellplanev1alpha1.Reservation) bool {
		if r.Unreadable != "" {
			faults = append(faults, r.Unreadable)
		}
		return r.Unreadable != ""
	})
	return faults
}

// unreadable returns what is wrong with the nodes that a ledger tells of.
func unreadable(l *cellplanev1alpha1.ClusterLedger) []string {
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

// outstanding counts the pods that are promised and do not run.
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

// lower lets no more pods be expected than given, from the last class on.
func lower(r *cellplanev1alpha1.Reservation, most int64) {
	excess := outstanding(r) - max(0, most)
	for i := len(r.Pods) - 1; i >= 0 && excess > 0; i-- {
		going := min(excess, int64(r.Pods[i].Count))
		r.Pods[i].Count -= int32(going)
		excess -= going
	}
}

// sweep removes promises that nothing is left of.
func sweep(l *cellplanev1alpha1.ClusterLedger) {
	for i := range l.Reservations {
		r := &l.Reservations[i]
		r.Pods = slices.DeleteFunc(r.Pods, func(p cellplanev1alpha1.ReservedPods) bool { return p.Count == 0 })
	}
	l.Reservations = slices.DeleteFunc(l.Reservations, func(r cellplanev1alpha1.Reservation) bool { return len(r.Pods) == 0 })
}

// larger returns the larger request of each resource: pods of an old and a new template may be on their way together.
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

// replicas makes a count of replicas one that estimators return.
func replicas(count int64) int32 { return int32(min(count, math.MaxInt32)) }
