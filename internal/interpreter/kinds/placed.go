package kinds

import workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"

// Placed are the copies of a template, as far as they are known.
type Placed struct {
	// Items are what the clusters with a copy report.
	Items []workv1alpha2.AggregatedStatusItem
	// Missing is how many clusters are to have a copy and have none yet.
	Missing int
	// Divided is set if the replicas of the template are divided among the clusters. Otherwise each cluster has all of them.
	Divided bool
}
