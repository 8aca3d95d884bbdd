package v1alpha1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MultiClusterIngress routes traffic from outside to services in several clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=multiclusteringresses,scope=Namespaced,shortName=mci,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) && (has(self.spec.defaultBackend) || (has(self.spec.rules) && size(self.spec.rules) > 0))",message="spec needs a defaultBackend or rules"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.defaultBackend) || has(self.spec.defaultBackend.service) != has(self.spec.defaultBackend.resource)",message="spec.defaultBackend needs exactly one of service and resource"
type MultiClusterIngress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is that of an Ingress.
	// +optional
	Spec networkingv1.IngressSpec `json:"spec,omitzero"`

	// Status is that of an Ingress and where its services are.
	// +optional
	Status MultiClusterIngressStatus `json:"status,omitzero"`
}

// MultiClusterIngressList is a list of MultiClusterIngress.
//
// +kubebuilder:object:root=true
type MultiClusterIngressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MultiClusterIngress `json:"items"`
}

// MultiClusterIngressStatus is the status of an ingress and where its services are.
type MultiClusterIngressStatus struct {
	networkingv1.IngressStatus `json:",inline"`

	// TrafficBlockClusters get no traffic.
	// +optional
	TrafficBlockClusters []string `json:"trafficBlockClusters,omitempty"`

	// ServiceLocations are the clusters of each service.
	// +optional
	ServiceLocations []ServiceLocation `json:"serviceLocations,omitempty"`
}

// ServiceLocation is where a service is.
type ServiceLocation struct {
	// Name of the service.
	// +required
	Name string `json:"name"`

	// Clusters that run it.
	// +optional
	Clusters []string `json:"clusters,omitempty"`
}
