package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// lags is the cumulative histogram of the time until changes are copied, by upper bound in seconds.
type lags map[float64]uint64

// lags returns the histogram of the hub manager, which is empty while it is paused.
func (w *world) lags(ctx context.Context, running bool) (lags, error) {
	if !running {
		return nil, nil
	}
	address, err := w.federation.Address("hub-manager")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("requesting the metrics of the hub manager: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("parsing the metrics of the hub manager: %w", err)
	}
	counted := lags{}
	for _, metric := range families["cellplane_backup_copy_seconds"].GetMetric() {
		for _, bucket := range metric.GetHistogram().GetBucket() {
			if bound := bucket.GetUpperBound(); !math.IsInf(bound, 1) {
				counted[bound] += bucket.GetCumulativeCount()
			}
		}
		counted[math.Inf(1)] += metric.GetHistogram().GetSampleCount()
	}
	return counted, nil
}

// add adds the difference of two histograms.
func (l lags) add(after, before lags) {
	for bound, count := range after {
		l[bound] += count - before[bound]
	}
}

// p99 returns the upper bound of the bucket that the 99th percentile falls into.
func (l lags) p99() float64 {
	for _, bound := range slices.Sorted(maps.Keys(l)) {
		if float64(l[bound]) >= 0.99*float64(l[math.Inf(1)]) {
			return bound
		}
	}
	return math.Inf(1)
}
