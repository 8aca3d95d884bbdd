package ledger

import (
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
		if !asked {
			asked = true
			if len(spec.Components) == 0 {
				pod, _ = simulate.FromRequirements(spec.ReplicaRequirements) // for what cannot be read the general estimate answers
			}
		}
		if last.cluster == cluster {
			return last.fit, true
		}
		account := accounts(cluster)
		if pod == nil || !account.Known() {
			return simulate.Fit{}, false
		}
		last.cluster, last.fit = cluster, account.Room(pod)
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
