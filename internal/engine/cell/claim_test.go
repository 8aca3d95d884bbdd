package cell

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
)

// TestClaimsOfServices: a MultiClusterService has the label of its permanent ID and is not claimed by itself.
func TestClaimsOfServices(t *testing.T) {
	labels := map[string]string{names.MultiClusterServicePermanentIDLabel: "id", names.ClaimedByLabel: names.ClaimedByMultiClusterService}
	service := &Kind{GroupVersionKind: ServiceKind}
	other := &Kind{GroupVersionKind: schema.GroupVersionKind{Group: "networking.karmada.io", Version: "v1alpha1", Kind: "MultiClusterService"}}
	if claim := claimOn(service, labels, nil); claim.ServiceID != "id" || claimedElsewhere(service, labels) {
		t.Errorf("the claim of a Service is %+v", claim)
	}
	if claim := claimOn(other, labels, nil); !claim.Empty() || !claimedElsewhere(other, labels) {
		t.Errorf("the claim of a MultiClusterService is %+v", claim)
	}
	delete(labels, names.MultiClusterServicePermanentIDLabel)
	if !claimedElsewhere(service, labels) {
		t.Error("a Service that another controller claims is propagated")
	}
}
