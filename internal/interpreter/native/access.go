package native

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/interpreter/fields"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

const (
	serviceAccountTokenType   = "kubernetes.io/service-account-token"
	serviceAccountUIDKey      = "kubernetes.io/service-account.uid"
	selectedNodeAnnotation    = "volume.kubernetes.io/selected-node"
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
)

var serviceAccount = kinds.Kind{Retain: retainServiceAccount}

var secret = kinds.Kind{Retain: retainSecret}

// retainServiceAccount keeps the token secrets a member made; removing them would make it create new ones forever.
func retainServiceAccount(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	wanted, _, err := fields.Slice(desired.Object, "secrets")
	if err != nil || len(wanted) > 0 {
		return desired, err
	}
	if made, _, err := fields.Slice(observed.Object, "secrets"); err != nil || len(made) == 0 {
		return desired, err
	}
	return kinds.RetainAt(kinds.Path{"secrets"})(desired, observed)
}

// retainSecret keeps the token a member issued.
func retainSecret(desired, observed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind, _, err := fields.String(desired.Object, "type")
	if err != nil || kind != serviceAccountTokenType {
		return desired, err
	}
	return kinds.RetainAt(kinds.Path{"data"}, kinds.Path{"metadata", "annotations", serviceAccountUIDKey})(desired, observed)
}
