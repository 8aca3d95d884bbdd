// Package placement decides where the objects of a resource live: on the hub, or in a cell, and then in which one.
package placement

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/cellplane/cellplane/api/names"
)

// Place is where the objects of a resource live.
type Place int

const (
	// OnHub is the place of objects that are not divided among the cells.
	OnHub Place = iota
	// ByName is the place of objects whose own name selects the cell.
	ByName
	// ByTemplate is the place of bindings: the cell of the template they are named after.
	ByTemplate
	// Anywhere is the place of objects that any cell may hold. The cell selected by the name is the most likely one.
	Anywhere
)

// hubGroups are the API groups whose namespaced resources every cell or every login needs.
var hubGroups = map[string]bool{
	"policy.karmada.io":         true,
	"rbac.authorization.k8s.io": true,
	"authorization.k8s.io":      true, // reviews have no name; the hub answers them
	"authentication.k8s.io":     true,
}

// exceptions are the resources whose place differs from that of their group.
var exceptions = map[schema.GroupResource]Place{
	{Resource: "serviceaccounts"}:                                          OnHub,
	{Resource: "resourcequotas"}:                                           OnHub,
	{Resource: "namespaces"}:                                               OnHub,
	{Resource: "events"}:                                                   Anywhere,
	{Group: "events.k8s.io", Resource: "events"}:                           Anywhere,
	{Group: "work.karmada.io", Resource: "works"}:                          Anywhere,
	{Group: "work.karmada.io", Resource: "resourcebindings"}:               ByTemplate,
	{Group: "cluster.karmada.io", Resource: "clusters"}:                    OnHub,
	{Group: "cellplane.io", Resource: "rolloutpolicies"}:                   OnHub,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: OnHub,
}

// InNamespace returns the place of the objects of a namespaced resource. Everything in a namespace of the control plane is on the hub.
func InNamespace(resource schema.GroupResource, namespace string) Place {
	if OfControlPlane(namespace) {
		return OnHub
	}
	if place, found := exceptions[resource]; found {
		return place
	}
	if hubGroups[resource.Group] {
		return OnHub
	}
	return ByName
}

// OfObject returns the place of a namespaced object.
func OfObject(resource schema.GroupResource, namespace, name string) Place {
	if IsClusterInfo(resource, namespace, name) || IsBootstrapToken(resource, namespace, name) {
		return OnHub
	}
	return InNamespace(resource, namespace)
}

// IsClusterInfo reports whether an object is the ConfigMap by which clusters that register recognize the gateway. The hub signs it.
func IsClusterInfo(resource schema.GroupResource, namespace, name string) bool {
	return resource == schema.GroupResource{Resource: "configmaps"} && namespace == metav1.NamespacePublic && name == bootstrapapi.ConfigMapClusterInfo
}

// IsBootstrapToken reports whether an object is the Secret of a bootstrap token. The hub authenticates by it.
func IsBootstrapToken(resource schema.GroupResource, namespace, name string) bool {
	return resource == schema.GroupResource{Resource: "secrets"} && namespace == metav1.NamespaceSystem && strings.HasPrefix(name, bootstrapapi.BootstrapTokenSecretPrefix)
}

// AreBootstrapTokens reports whether a list is one of bootstrap tokens only.
func AreBootstrapTokens(resource schema.GroupResource, namespace, fieldSelector string) bool {
	return resource == schema.GroupResource{Resource: "secrets"} && namespace == metav1.NamespaceSystem &&
		fieldSelector == "type="+string(bootstrapapi.SecretTypeBootstrapToken)
}

// OfControlPlane reports whether a namespace belongs to the control plane itself. Objects that cells hold in such a namespace are
// copies of the hub's objects, or private to the cell.
func OfControlPlane(namespace string) bool {
	return namespace == names.SystemNamespace || namespace == names.ClusterNamespace
}
