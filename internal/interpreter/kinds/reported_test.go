package kinds

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// FuzzScan checks that the fast reader either agrees with the general one or falls back to it.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"replicas":3}`, ` { "replicas" : -3 , "labelSelector" : "a=b" } `, `{"replicas":3,"replicas":4}`, `{"replicas":01}`, `{"replicas":1.0}`,
		`{"replicas":1e3}`, `{"replicas":- 1}`, `{"replicas":9223372036854775807}`, `{"labelSelector":"a\"b"}`, `{"labelSelector":"é"}`, `{"Replicas":3}`,
		`{"replicas":3,}`, `{"replicas":3}x`, `{"replicas":"3"}`, `{"replicas":null}`, `{"other":1}`, `[]`, `{"replicas"`, `{"replicas":-}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var fast, general reported
		if !fast.scan(raw) {
			return
		}
		if err := json.Unmarshal(raw, &general); err != nil {
			t.Fatalf("%q was read although it is invalid: %v", raw, err)
		}
		if fast != general {
			t.Fatalf("%q was read as %+v, not as %+v", raw, fast, general)
		}
	})
}

func TestScanReadsWhatReflectWrites(t *testing.T) {
	raw := []byte(`{"generation":3,"resourceTemplateGeneration":2,"observedGeneration":3,"replicas":12,"updateRevision":"web-6f7"}`)
	var r reported
	if !r.scan(raw) || r.Replicas != 12 || r.Generation != 3 || r.ResourceTemplateGeneration != 2 || r.ObservedGeneration != 3 || r.UpdateRevision != "web-6f7" {
		t.Fatalf("got %+v", r)
	}
}

func TestStatusHeldAsAnObject(t *testing.T) {
	item := workv1alpha2.AggregatedStatusItem{ClusterName: "m", Status: &runtime.RawExtension{Object: &runtime.Unknown{}}}
	var r reported
	if _, err := r.decode(&item); err != nil {
		t.Fatal(err)
	}
}
