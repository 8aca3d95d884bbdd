package durability

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestEncode checks that API servers can read the Lease, and gateways get what backups have written.
func TestEncode(t *testing.T) {
	want := Received{Source: "cell-a", Revision: 1 << 40, Epoch: 7, InUse: true, Time: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(data); err != nil || got != want {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), data)
	if err != nil {
		t.Fatal(err)
	}
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease.Name != ReceivedName("cell-a") || lease.UID == "" || !lease.Spec.RenewTime.Time.Equal(want.Time) {
		t.Errorf("API servers read %+v", object)
	}
}

func TestDecodeOthers(t *testing.T) {
	for _, data := range []string{
		``, `{}`, `{"metadata":{"name":"cellplane-received-a","labels":{"cellplane.io/received-from":"a"}}}`,
		`{"metadata":{"name":"other","labels":{"cellplane.io/received-from":"a"},"annotations":{"cellplane.io/received-revision":"1","cellplane.io/received-epoch":"1"}},"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}`,
	} {
		if got, err := Decode([]byte(data)); err == nil {
			t.Errorf("%s is read as %+v", data, got)
		}
	}
}

func TestParse(t *testing.T) {
	for value, want := range map[string]Mode{"": None, "replicated": Replicated, "replicated-preferred": Preferred, "Replicated": Replicated, "none": Replicated} {
		if got := Parse(value); got != want {
			t.Errorf("%q: got %d, want %d", value, got, want)
		}
	}
}
