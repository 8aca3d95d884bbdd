package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/api/names"
)

// Placement says where the objects of a resource live.
type Placement int

const (
	// OnHub is for what is not cut into cells.
	OnHub Placement = iota
	// ByName is for objects whose name says which cell they are in.
	ByName
	// ByTemplate is for bindings, which live with the template they are called after.
	ByTemplate
	// Anywhere is for objects that are made in any cell: the one of their name is the likeliest.
	Anywhere
)

// hubGroups are API groups whose namespaced resources are needed by every cell or every login.
var hubGroups = map[string]bool{
	"policy.karmada.io":         true,
	"rbac.authorization.k8s.io": true,
	"authorization.k8s.io":      true, // reviews have no name, and the hub answers them
	"authentication.k8s.io":     true,
}

// exceptions are the resources that do not follow from their group.
var exceptions = map[schema.GroupResource]Placement{
	{Resource: "serviceaccounts"}:                                          OnHub,
	{Resource: "resourcequotas"}:                                           OnHub,
	{Resource: "namespaces"}:                                               OnHub,
	{Resource: "events"}:                                                   Anywhere,
	{Group: "events.k8s.io", Resource: "events"}:                           Anywhere,
	{Group: "work.karmada.io", Resource: "works"}:                          Anywhere,
	{Group: "work.karmada.io", Resource: "resourcebindings"}:               ByTemplate,
	{Group: "cluster.karmada.io", Resource: "clusters"}:                    OnHub,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: OnHub,
}

// InNamespace returns where the objects of a namespaced resource live. Namespaces of the control plane itself are on the hub as a whole.
func InNamespace(resource schema.GroupResource, namespace string) Placement {
	if OfControlPlane(namespace) {
		return OnHub
	}
	if placement, found := exceptions[resource]; found {
		return placement
	}
	if hubGroups[resource.Group] {
		return OnHub
	}
	return ByName
}

// OfControlPlane reports whether a namespace is one of the control plane itself. What cells have in it are copies of the hub's objects
// and things of their own, which are nobody else's to see.
func OfControlPlane(namespace string) bool {
	return namespace == names.SystemNamespace || namespace == names.ClusterNamespace
}
