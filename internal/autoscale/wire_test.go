package autoscale

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
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
		gotMetric, part := Decode(sums)
		got := part.Sums
		if !got.Time.Equal(want.Time) {
			t.Errorf("got the time %s, want %s", got.Time, want.Time)
		}
		got.Time, want.Time = time.Time{}, time.Time{} // they differ in the location
		if gotMetric != metric || part.Value != 0 || part.Failure != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v %+v\n%s\ngot %+v %+v", metric, want, data, gotMetric, got)
		}
	})
}

// TestWireOfValues checks that values of objects and external metrics, and the wishes for them, arrive as they were sent.
func TestWireOfValues(t *testing.T) {
	for _, metric := range []Metric{
		{Name: "queue", External: true}, {Name: "queue", Selector: "a=b,c in (d,e)", External: true},
		{Name: "hits", Object: autoscalingv2.CrossVersionObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "web"}},
		{Name: "queue"}, {Resource: corev1.ResourceCPU, Container: "main"},
	} {
		if got := DecodeWanted(sent(t, EncodeWanted(metric))); got != metric {
			t.Errorf("the wish for %+v arrives as %+v", metric, got)
		}
		for _, value := range []int64{0, 1, -5, 1500, 1 << 62} {
			if got, part := Decode(sent(t, EncodeValue(metric, value))); got != metric || part.Value != value || part.Failure != "" {
				t.Errorf("%d of %+v arrives as %+v of %+v", value, metric, part, got)
			}
		}
		if got, part := Decode(sent(t, EncodeFailure(metric, "no"))); got != metric || part.Failure != "no" {
			t.Errorf("the failure of %+v arrives as %+v of %+v", metric, part, got)
		}
	}
}

func sent[T any](t *testing.T, value T) (received T) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &received); err != nil {
		t.Fatal(err)
	}
	return received
}
