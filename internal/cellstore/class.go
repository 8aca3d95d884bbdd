package cellstore

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// Class says what a stored object is to the federation.
type Class int

const (
	// Local objects belong to the cell they are in: copies of the hub's objects, events, and what an API server makes for itself.
	Local Class = iota
	// Template objects are the users' own. They move with their slot and are backed up.
	Template
	// Binding objects are resource bindings. They go where their template goes.
	Binding
	// Work objects are made from bindings. They have a slot, but every cell makes its own: they neither move nor are backed up.
	Work
)

// Federated reports whether objects of the class are cut into cells, so that they move and are backed up.
func (c Class) Federated() bool { return c == Template || c == Binding }

// Classify returns what an object is to the federation, and its slot if it has one, which all classes but Local do. Where a client
// may put what is decided by the same table.
func Classify(o *Object) (Class, slots.Slot) {
	if o.Namespace == "" || o.isNative() {
		return Local, 0
	}
	// The guess is right for the resources that are exceptions, and for all others only the group counts.
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

// identityLabel is on the leases by which API servers of one control plane know each other.
const identityLabel = "apiserver.kubernetes.io/identity"

// fenceLease is the lease in which a cell keeps the lowest epoch it accepts.
const fenceLease = "cellplane-fence"

// isNative reports what every control plane has of its own.
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
