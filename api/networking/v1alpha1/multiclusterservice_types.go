package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MultiClusterService makes the Service of its name reachable across clusters, or from outside.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=multiclusterservices,scope=Namespaced,shortName=mcs,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type MultiClusterService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says who offers the service to whom.
	// +required
	Spec MultiClusterServiceSpec `json:"spec"`

	// Status is that of a Service.
	// +optional
	Status corev1.ServiceStatus `json:"status,omitzero"`
}

// MultiClusterServiceList is a list of MultiClusterService.
//
// +kubebuilder:object:root=true
type MultiClusterServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MultiClusterService `json:"items"`
}

// MultiClusterServiceSpec says who offers a service to whom.
type MultiClusterServiceSpec struct {
	// Types holds exactly one way of exposing the service. It cannot be changed.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:Enum=CrossCluster;LoadBalancer
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="types cannot be changed"
	Types []ExposureType `json:"types"`

	// Ports are the ports of the Service that are exposed; none means all.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(p, !has(p.name) || size(p.name) == 0 || self.exists_one(q, has(q.name) && q.name == p.name))",message="ports: name must be unique"
	Ports []ExposurePort `json:"ports,omitempty"`

	// Range is a deprecated way of selecting clusters; providerClusters and consumerClusters replace it.
	// +optional
	Range ExposureRange `json:"range,omitzero"`

	// ServiceProvisionClusters is a deprecated way of naming providers; providerClusters replace it.
	// +optional
	ServiceProvisionClusters []string `json:"serviceProvisionClusters,omitempty"`

	// ServiceConsumptionClusters is a deprecated way of naming consumers; consumerClusters replace it.
	// +optional
	ServiceConsumptionClusters []string `json:"serviceConsumptionClusters,omitempty"`

	// ProviderClusters run the backends; none means all clusters.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	ProviderClusters []ClusterSelector `json:"providerClusters,omitempty"`

	// ConsumerClusters see the service; none means all clusters.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	ConsumerClusters []ClusterSelector `json:"consumerClusters,omitempty"`
}

// ExposureType is a way of exposing a service.
type ExposureType string

const (
	// ExposureTypeCrossCluster makes a service reachable from other clusters by its own name.
	ExposureTypeCrossCluster ExposureType = "CrossCluster"
	// ExposureTypeLoadBalancer makes a service reachable through a load balancer outside.
	ExposureTypeLoadBalancer ExposureType = "LoadBalancer"
)

// ClusterSelector selects a cluster.
type ClusterSelector struct {
	// Name of the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ExposurePort is a port of the Service.
type ExposurePort struct {
	// Name of the port in the Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// Port is its number.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// ExposureRange lists clusters.
type ExposureRange struct {
	// ClusterNames are the clusters.
	// +optional
	ClusterNames []string `json:"clusterNames,omitempty"`
}
