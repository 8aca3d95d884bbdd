package v1alpha1

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestLedgerNodesText(t *testing.T) {
	n := LedgerNodes{Count: 12, Free: corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("12Gi"), corev1.ResourceCPU: resource.MustParse("3500m"), "example.com/gpu": resource.MustParse("2"),
	}}
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"12 cpu=3500m example.com/gpu=2 memory=12Gi"`; string(text) != want {
		t.Errorf("nodes are written %s, want %s", text, want)
	}
	for _, wrong := range []string{`""`, `"x"`, `"-1 cpu=1"`, `"1 cpu"`, `"1 cpu=x"`, `{"count":1}`, `"99999999999"`} {
		if err := json.Unmarshal([]byte(wrong), &n); err == nil {
			t.Errorf("%s is read as %+v", wrong, n)
		}
	}
}

func TestLedgerNodesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := LedgerNodes{Count: rapid.Int32Min(0).Draw(t, "count"), Free: corev1.ResourceList{}}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]corev1.ResourceName{"cpu", "memory", "pods", "example.com/gpu"}), rapid.ID).Draw(t, "names") {
			format := rapid.SampledFrom([]resource.Format{resource.DecimalSI, resource.BinarySI}).Draw(t, "format")
			n.Free[name] = *resource.NewMilliQuantity(rapid.Int64Range(0, 1<<50).Draw(t, "amount"), format)
		}
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var read LedgerNodes
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(n, read) {
			t.Fatalf("%s is read as %+v, was %+v", text, read, n)
		}
	})
}
