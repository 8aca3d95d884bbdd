package ledger

import (
	"math"
	"sort"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Estimators estimate from the accounts of clusters, as Store.Estimators do.
func Estimators(accounts func(cluster string) *Account, pod *simulate.Pod) (room, growth schedule.Estimator) {
	asked := pod != nil
	// Both are asked about a cluster one after the other.
	var last struct {
		cluster string
		fit     simulate.Fit
	}
	fit := func(cluster string, spec *workv1alpha2.ResourceBindingSpec) (simulate.Fit, bool) {
		if last.cluster == cluster {
			return last.fit, true
		}
		account := accounts(cluster)
		if !account.Known() {
			return simulate.Fit{}, false
		}
		if len(spec.Components) > 0 {
			sets, known := account.Sets(spec.Components)
			if !known {
				return simulate.Fit{}, false
			}
			last.cluster, last.fit = cluster, simulate.Fit{Replicas: sets}
			return last.fit, true
		}
		if !asked {
			asked = true
			pod, _ = simulate.FromRequirements(spec.ReplicaRequirements) // for what cannot be read the general estimate answers
		}
		if pod == nil {
			return simulate.Fit{}, false
		}
		last.cluster, last.fit = cluster, account.Room(pod.Ordinals(assigned(spec, cluster), math.MaxInt32))
		return last.fit, true
	}
	room = func(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) int32 {
		if found, known := fit(cluster.Name, spec); known {
			return replicas(found.Total())
		}
		return schedule.Unknown
	}
	growth = func(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) int32 {
		if found, known := fit(cluster.Name, spec); known {
			return replicas(found.Growth)
		}
		return schedule.Unknown
	}
	return room, growth
}

// mostSets is up to how many sets of components are counted: clusters with more room are alike.
const mostSets = 1024

// Sets tells how many times there is room for all components together. It is not known where a component cannot be read.
func (a *Account) Sets(components []workv1alpha2.Component) (sets int64, known bool) {
	pods := make([]*simulate.Pod, len(components))
	for i := range components {
		pod, err := simulate.FromComponent(components[i].ReplicaRequirements)
		if err != nil {
			return 0, false
		}
		pods[i] = pod
	}
	fits := func(sets int) bool {
		left := a.free.Clone()
		for i, pod := range pods {
			missing := int64(components[i].Replicas) * int64(sets)
			for _, c := range left.Fit(pod).Classes {
				here := min(missing, c.Replicas)
				left.Take(c.Class, pod.Requests, here)
				missing -= here
			}
			if missing > 0 {
				return false
			}
		}
		return true
	}
	return int64(sort.Search(mostSets, func(n int) bool { return !fits(n + 1) })), true
}

// assigned is how many replicas a cluster has already.
func assigned(spec *workv1alpha2.ResourceBindingSpec, cluster string) int64 {
	for i := range spec.Clusters {
		if spec.Clusters[i].Name == cluster {
			return int64(spec.Clusters[i].Replicas)
		}
	}
	return 0
}

// Promised counts the pods that are promised room and do not run yet.
func (a *Account) Promised() int64 { return allOutstanding(a.ledger) }

// Nodes counts the nodes that exist and those that could be added.
func (a *Account) Nodes() (existing, potential int32) {
	for i := range a.ledger.Classes {
		for _, alike := range a.ledger.Classes[i].Nodes {
			if a.ledger.Classes[i].Potential {
				potential += alike.Count
			} else {
				existing += alike.Count
			}
		}
	}
	return existing, potential
}
