package ledger

import (
	"math"
	"sort"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// Estimators returns estimators that use the accounts of clusters. See Store.Estimators.
func Estimators(accounts func(cluster string) *Account, pod *simulate.Pod) (free, growth schedule.Estimator) {
	asked := pod != nil
	// Both estimators are called for a cluster in sequence; compute the fit once.
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
			sets, known := account.Sets(spec.Resource.Namespace, spec.Components)
			if !known {
				return simulate.Fit{}, false
			}
			last.cluster, last.fit = cluster, simulate.Fit{Replicas: sets}
			return last.fit, true
		}
		if !asked {
			asked = true
			pod, _ = simulate.FromRequirements(spec.Resource.Namespace, spec.ReplicaRequirements) // nil on an error: the general estimator is used
		}
		if pod == nil {
			return simulate.Fit{}, false
		}
		last.cluster, last.fit = cluster, account.Capacity(pod.Ordinals(assigned(spec, cluster), math.MaxInt32))
		return last.fit, true
	}
	free = func(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) int32 {
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
	return free, growth
}

// maxSets is the highest number of sets that is counted.
const maxSets = 1024

// Sets returns how many sets of all components fit, for a workload of a namespace. It returns false if a component's requirements are invalid.
func (a *Account) Sets(namespace string, components []workv1alpha2.Component) (sets int64, known bool) {
	pods := make([]*simulate.Pod, len(components))
	for i := range components {
		pod, err := simulate.FromComponent(namespace, components[i].ReplicaRequirements)
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
				left.UseQuotaOf(pod, here)
				missing -= here
			}
			if missing > 0 {
				return false
			}
		}
		return true
	}
	return int64(sort.Search(maxSets, func(n int) bool { return !fits(n + 1) })), true
}

// assigned returns the number of replicas that a cluster has already.
func assigned(spec *workv1alpha2.ResourceBindingSpec, cluster string) int64 {
	for i := range spec.Clusters {
		if spec.Clusters[i].Name == cluster {
			return int64(spec.Clusters[i].Replicas)
		}
	}
	return 0
}

// Reserved returns the number of pods with a reservation that do not run yet.
func (a *Account) Reserved() int64 { return allOutstanding(a.ledger) }

// Nodes returns the number of existing nodes and of nodes that could be added.
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
