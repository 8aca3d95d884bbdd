package cellstore

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// Class is the role of a stored object in the federation.
type Class int

const (
	// Local objects belong to their cell: copies of the hub's objects, events, and objects of the API server itself.
	Local Class = iota
	// Template objects are those of users. They move with their slot and are backed up.
	Template
	// Binding objects are resource bindings. They move with their template.
	Binding
	// Work objects are derived from bindings. They have a slot, but each cell creates its own: they neither move nor are backed up.
	Work
)

// Federated reports whether objects of the class are divided among the cells, so that they move and are backed up.
func (c Class) Federated() bool { return c == Template || c == Binding }

// Classify returns the class of an object, and its slot unless the class is Local. It uses the same table as the gateway does for
// routing.
func Classify(o *Object) (Class, slots.Slot) {
	if o.Namespace == "" || o.isNative() {
		return Local, 0
	}
	// The guessed resource is right for all exceptions in the table; for all others only the group counts.
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind)
	switch placement.InNamespace(resource.GroupResource(), o.Namespace) {
	case placement.ByName:
		return Template, slots.Of(o.Namespace, o.Name)
	case placement.ByTemplate:
		return Binding, slots.Of(o.Namespace, o.TemplateName)
	case placement.Anywhere:
		if slot, err := slots.ParseHint(o.Labels[slots.HintLabel]); err == nil && o.Kind == "Work" {
			return Work, slot
		}
	case placement.OnHub:
	}
	return Local, 0
}

// identityLabel is on the leases of API servers of one control plane.
const identityLabel = "apiserver.kubernetes.io/identity"

// fenceLease is the lease that holds the lowest epoch a cell accepts.
const fenceLease = "cellplane-fence"

// isNative reports whether an object is one that every control plane creates for itself.
func (o *Object) isNative() bool {
	switch o.Namespace {
	case metav1.NamespaceDefault:
		return o.Name == "kubernetes" && (o.Kind == "Service" || o.Kind == "Endpoints" || o.Kind == "EndpointSlice")
	case metav1.NamespaceSystem:
		switch o.Kind {
		case "Lease":
			return o.Labels[identityLabel] != "" || o.Name == fenceLease
		case "ConfigMap":
			return o.Name == "extension-apiserver-authentication" || o.Name == "kube-apiserver-legacy-service-account-token-tracking"
		}
	case corev1.NamespaceNodeLease:
		return o.Kind == "Lease"
	}
	return false
}
