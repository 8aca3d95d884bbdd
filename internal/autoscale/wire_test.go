package autoscale

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// TestWire checks that sums arrive as they were sent.
func TestWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, samples := drawPods(t)
		metric := rapid.SampledFrom([]Metric{cpu, bytes, {Resource: corev1.ResourceCPU, Container: "main"}, {Name: "requests", Selector: "a=b"}}).Draw(t, "metric")
		want := Sum(pods, metric, samples, DefaultStartup, now)
		// Amounts are exact to the thousandth, also where they are large.
		if large := rapid.Int64Range(0, 1<<60).Draw(t, "more"); want.Measured > 0 {
			want.Usage += large
		}
		data, err := json.Marshal(Encode(metric, want))
		if err != nil {
			t.Fatal(err)
		}
		var sums metricsv1alpha1.MetricSums
		if err := json.Unmarshal(data, &sums); err != nil {
			t.Fatal(err)
		}
		gotMetric, got := Decode(sums)
		if !got.Time.Equal(want.Time) {
			t.Errorf("got the time %s, want %s", got.Time, want.Time)
		}
		got.Time, want.Time = time.Time{}, time.Time{} // they differ in the location
		if gotMetric != metric || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v %+v\n%s\ngot %+v %+v", metric, want, data, gotMetric, got)
		}
	})
}
