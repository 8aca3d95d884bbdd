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
		if err := json.Unmarshal([]byte(wrong), &n); err != nil || n.Unreadable == "" || n.Count != 0 || len(n.Free) != 0 {
			t.Errorf("%s is read as %+v, with error %v", wrong, n, err)
		}
	}
	if err := json.Unmarshal(text, &n); err != nil || n.Unreadable != "" || n.Count != 12 {
		t.Errorf("after all that %s is read as %+v, with error %v", text, n, err)
	}
}

// An invalid reservation is marked as unreadable. The others are read.
func TestUnreadableReservations(t *testing.T) {
	const sound = `{"holder":"a","workload":{"kind":"Deployment","namespace":"default","name":"web"},"total":3,"pods":[{"class":"c","count":3}],"requests":{"cpu":"1"},"expires":"2030-01-02T03:04:05Z"}`
	for _, wrong := range []string{
		`{}`, `"text"`, `7`, `[]`, `{"workload":"web"}`, `{"total":"many"}`,
		`{"workload":{"kind":"Deployment"},"total":1,"expires":"2030-01-02T03:04:05Z"}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":-1,"expires":"2030-01-02T03:04:05Z"}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":99999999999,"expires":"2030-01-02T03:04:05Z"}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":1}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":1,"expires":"tomorrow"}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":1,"expires":"2030-01-02T03:04:05Z","pods":[{"class":"c","count":-4}]}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":1,"expires":"2030-01-02T03:04:05Z","requests":{"cpu":"-4"}}`,
		`{"workload":{"kind":"Deployment","name":"web"},"total":1,"expires":"2030-01-02T03:04:05Z","requests":{"cpu":"much"}}`,
	} {
		var l ClusterLedger
		if err := json.Unmarshal([]byte(`{"reservations":[`+sound+`,`+wrong+`,`+sound+`]}`), &l); err != nil {
			t.Errorf("with %s among the reservations: %v", wrong, err)
			continue
		}
		for i, r := range l.Reservations {
			if i == 1 && (r.Unreadable == "" || len(r.Pods) != 0 || r.Total != 0) || i != 1 && (r.Unreadable != "" || r.Total != 3) {
				t.Errorf("with %s among the reservations, number %d is read as %+v", wrong, i, r)
			}
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
