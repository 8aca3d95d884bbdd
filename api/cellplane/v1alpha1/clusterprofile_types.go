package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterProfile holds the price and the growth limits of a member. It has the name of its Cluster. A cluster
// without one has no price and does not grow.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterprofiles,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="CPU-Hour",type=string,JSONPath=`.spec.price.perHour.cpu`
// +kubebuilder:printcolumn:name="Currency",type=string,JSONPath=`.spec.price.currency`
// +kubebuilder:printcolumn:name="Max-Nodes",type=integer,JSONPath=`.spec.size.maxNodes`
// +kubebuilder:printcolumn:name="Scale-Up",type=string,JSONPath=`.spec.elasticity.scaleUpLatency`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the description of the cluster.
	// +required
	Spec ClusterProfileSpec `json:"spec"`
}

// ClusterProfileList is a list of ClusterProfile.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProfile `json:"items"`
}

// ClusterProfileSpec describes a cluster beyond what the cluster reports itself.
type ClusterProfileSpec struct {
	// Price of the cluster's resources.
	// +optional
	Price *ClusterPrice `json:"price,omitempty"`

	// Elasticity says how the cluster grows. A cluster without it does not grow.
	// +optional
	Elasticity *ClusterElasticity `json:"elasticity,omitempty"`

	// Size limits the number of nodes.
	// +optional
	Size *ClusterSize `json:"size,omitempty"`
}

// ClusterPrice is the price of resources.
type ClusterPrice struct {
	// PerHour is the list price of one unit per hour: of one CPU, one GiB of memory or storage, or one unit of any
	// other resource. Unlisted resources are free.
	// +optional
	// +kubebuilder:validation:MaxProperties=24
	// +kubebuilder:validation:XValidation:rule="self.all(name, !string(self[name]).startsWith('-'))",message="perHour: a price must not be negative"
	PerHour map[corev1.ResourceName]resource.Quantity `json:"perHour,omitempty"`

	// Currency is shown with prices. It is not converted when clusters are compared.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Currency string `json:"currency,omitempty"`

	// Shares say how the capacity is purchased. The rest is on demand at the list price.
	// +optional
	// +listType=map
	// +listMapKey=option
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(s, s.percent <= 100) && (size(self) == 0 || self.map(s, s.percent).sum() <= 100)",message="shares: percent must not add up to more than 100"
	Shares []PurchaseShare `json:"shares,omitempty"`
}

// PurchaseShare is a share of the capacity and its price.
type PurchaseShare struct {
	// Option is how this share is purchased.
	// +required
	// +kubebuilder:validation:Enum=Reserved;OnDemand;Spot
	Option PurchaseOption `json:"option"`

	// Percent of the capacity.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`

	// PricePercent is the price of this share in percent of the list price. Capacity that is paid for anyway costs
	// 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=100
	PricePercent *int32 `json:"pricePercent,omitempty"`
}

// PurchaseOption is how capacity is purchased.
type PurchaseOption string

const (
	// PurchaseReserved is capacity that is paid for whether it is used or not.
	PurchaseReserved PurchaseOption = "Reserved"
	// PurchaseOnDemand is capacity that is paid for while it is used.
	PurchaseOnDemand PurchaseOption = "OnDemand"
	// PurchaseSpot is capacity that the provider may reclaim at any time.
	PurchaseSpot PurchaseOption = "Spot"
)

// ClusterElasticity says how a cluster grows.
type ClusterElasticity struct {
	// NodeGroups are the groups of nodes that an autoscaler can add.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	NodeGroups []NodeGroup `json:"nodeGroups"`

	// ScaleUpLatency is the time until a new node runs pods.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	ScaleUpLatency *metav1.Duration `json:"scaleUpLatency,omitempty"`
}

// NodeGroup is a group of equal nodes that an autoscaler can add.
type NodeGroup struct {
	// Name of the group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// MaxNodes is the maximum number of nodes in the group. Existing nodes are recognized by the group's labels.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxNodes int32 `json:"maxNodes"`

	// Labels of the group's nodes.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Taints of the group's nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Allocatable resources of a new node.
	// +required
	Allocatable corev1.ResourceList `json:"allocatable"`
}

// ClusterSize limits the number of nodes.
type ClusterSize struct {
	// MaxNodes is the maximum number of nodes. A cluster with more nodes gets no new workloads.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodes *int32 `json:"maxNodes,omitempty"`

	// TargetNodes is the preferred number of nodes: clusters below it attract workloads, clusters above it do not.
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetNodes *int32 `json:"targetNodes,omitempty"`
}
