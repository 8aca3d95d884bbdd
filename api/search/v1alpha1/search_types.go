package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// ResourceRegistry lists member resources that are cached and searchable.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=resourceregistries,scope=Cluster,shortName=rr,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceRegistry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is cached, and where.
	// +optional
	Spec ResourceRegistrySpec `json:"spec,omitzero"`

	// Status is the state of caching.
	// +optional
	Status ResourceRegistryStatus `json:"status,omitzero"`
}

// ResourceRegistryList is a list of ResourceRegistry.
//
// +kubebuilder:object:root=true
type ResourceRegistryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceRegistry `json:"items"`
}

// ResourceRegistrySpec says what is cached, and where.
type ResourceRegistrySpec struct {
	// TargetCluster selects the clusters.
	// +required
	TargetCluster policyv1alpha1.ClusterAffinity `json:"targetCluster"`

	// ResourceSelectors select the resources.
	// +required
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// BackendStore keeps the objects; without it they are kept in memory.
	// +optional
	BackendStore *BackendStoreConfig `json:"backendStore,omitempty"`
}

// ResourceSelector selects the objects of a kind.
type ResourceSelector struct {
	// APIVersion of the objects.
	// +required
	APIVersion string `json:"apiVersion"`

	// Kind of the objects.
	// +required
	Kind string `json:"kind"`

	// Namespace of the objects; empty means all.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// BackendStoreConfig is where objects are kept.
type BackendStoreConfig struct {
	// OpenSearch keeps them in OpenSearch.
	// +optional
	OpenSearch *OpenSearchConfig `json:"openSearch,omitempty"`
}

// OpenSearchConfig says how OpenSearch is reached.
type OpenSearchConfig struct {
	// Addresses of its nodes.
	// +required
	// +kubebuilder:validation:MinItems=1
	Addresses []string `json:"addresses"`

	// SecretRef holds username and password.
	// +required
	SecretRef clusterv1alpha1.LocalSecretReference `json:"secretRef"`
}

// ResourceRegistryStatus is the state of caching.
type ResourceRegistryStatus struct {
	// Conditions of the registry.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Search is the kind behind search/cache, which answers from the cache. It is connected to, never stored.
//
// +kubebuilder:object:root=true
type Search struct {
	metav1.TypeMeta `json:",inline"`
}

// Proxying is the kind behind proxying/karmada/proxy, which shows all clusters as one API. It is connected to, never
// stored.
//
// +kubebuilder:object:root=true
type Proxying struct {
	metav1.TypeMeta `json:",inline"`
}
