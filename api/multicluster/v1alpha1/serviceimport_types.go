package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceImport is a service that other clusters offer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=serviceimports,scope=Namespaced,shortName={svcim,svcimport}
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.ips`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceImport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how the service is reached.
	// +optional
	Spec ServiceImportSpec `json:"spec,omitzero"`

	// Status lists the clusters that offer it.
	// +optional
	Status ServiceImportStatus `json:"status,omitzero"`
}

// ServiceImportList is a list of ServiceImport.
//
// +kubebuilder:object:root=true
type ServiceImportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceImport `json:"items"`
}

// ServiceImportType says whether a service has an address of its own.
type ServiceImportType string

const (
	// ClusterSetIP gives the service an address.
	ClusterSetIP ServiceImportType = "ClusterSetIP"
	// Headless leaves it to clients to select a backend.
	Headless ServiceImportType = "Headless"
)

// ServiceImportSpec says how a service is reached.
type ServiceImportSpec struct {
	// Ports of the service.
	// +required
	// +listType=atomic
	Ports []ServicePort `json:"ports"`

	// IPs of the service, when it has addresses.
	// +optional
	// +kubebuilder:validation:MaxItems=2
	IPs []string `json:"ips,omitempty"`

	// Type says whether the service has an address.
	// +required
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type ServiceImportType `json:"type"`

	// SessionAffinity of the service.
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// SessionAffinityConfig details the affinity.
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// IPFamilies of the service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// InternalTrafficPolicy says which backends take traffic from inside a cluster.
	// +optional
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// TrafficDistribution says which backends are preferred.
	// +optional
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`
}

// ServicePort is a port of an imported service.
type ServicePort struct {
	// Name of the port.
	// +optional
	Name string `json:"name,omitempty"`

	// Protocol of the port; TCP unless given.
	// +optional
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// AppProtocol is the protocol above.
	// +optional
	AppProtocol *string `json:"appProtocol,omitempty"`

	// Port is its number.
	// +required
	Port int32 `json:"port"`
}

// ServiceImportStatus lists the clusters that offer a service.
type ServiceImportStatus struct {
	// Clusters that offer it.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Clusters []ClusterStatus `json:"clusters,omitempty"`

	// Conditions of the import.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterStatus is a cluster that offers a service.
type ClusterStatus struct {
	// Cluster names it.
	// +required
	Cluster string `json:"cluster"`
}
