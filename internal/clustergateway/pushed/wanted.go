package pushed

import (
	"encoding/json"
	"strconv"

	"github.com/cespare/xxhash/v2"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// chosen are the wanted metrics that concern a cluster: those of the workloads that its agent reports about. What autoscalers of others want is not its business.
type chosen struct {
	// of is what was wanted in the federation; nil if nothing is chosen yet.
	of     *metricsv1alpha1.WantedMetrics
	wanted *metricsv1alpha1.WantedMetrics
}

// wantedIn returns what autoscalers want of a cluster; nil if that is not known.
func (m *Metrics) wantedIn(cluster string) *metricsv1alpha1.WantedMetrics {
	all := m.Wanted()
	if all == nil {
		return nil
	}
	r := m.reporterOf(cluster)
	defer r.mu.Unlock()
	if r.begun || r.session == "" {
		return nil // not all of its workloads are known
	}
	if r.chosen.of != all {
		r.chosen = chosen{all, choose(all, func(w *metricsv1alpha1.WantedWorkload) bool {
			_, err := m.Store.Get(cluster, w.Namespace, nameOf(w.WorkloadReference, cluster))
			return err == nil
		})}
	}
	return r.chosen.wanted
}

// choose returns what is wanted of some workloads. Its version is that of these only, so that the wishes for others are no news.
func choose(all *metricsv1alpha1.WantedMetrics, has func(*metricsv1alpha1.WantedWorkload) bool) *metricsv1alpha1.WantedMetrics {
	some := &metricsv1alpha1.WantedMetrics{}
	for i := range all.Workloads {
		if has(&all.Workloads[i]) {
			some.Workloads = append(some.Workloads, all.Workloads[i])
		}
	}
	data, _ := json.Marshal(some.Workloads) // strings can always be encoded
	some.Version = strconv.FormatUint(xxhash.Sum64(data), 16)
	return some
}
