package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterLedger is what a member has left and what of it is promised. It has the name of its Cluster and lives on the
// hub. Capacity and promises are one object and every change of it is a compare-and-swap, so that nobody can promise
// what another has promised a moment ago, and a promise ends in the write that counts its pods as running.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterledgers,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Observed",type=date,JSONPath=`.observedAt`
// +kubebuilder:printcolumn:name="Reserving",type=string,JSONPath=`.reservations[*].workload.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterLedger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Classes are the nodes, by what pods can tell of them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Classes []LedgerNodeClass `json:"classes,omitempty"`

	// Volumes are where claims are bound that not all nodes can reach.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Volumes []LedgerVolumes `json:"volumes,omitempty"`

	// StorageClasses are those that make volumes which not all nodes can reach.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []LedgerStorageClass `json:"storageClasses,omitempty"`

	// Revision counts how often the classes, the volumes or the storage classes were seen to differ.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// ObservedAt is when that was last.
	// +optional
	ObservedAt metav1.Time `json:"observedAt,omitzero"`

	// Holders are all that may promise; while the hub is away each counts on an equal share only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Holders []string `json:"holders,omitempty"`

	// Reservations are promises whose pods do not run yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8192
	Reservations []Reservation `json:"reservations,omitempty"`
}

// ClusterLedgerList is a list of ClusterLedger.
//
// +kubebuilder:object:root=true
type ClusterLedgerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterLedger `json:"items"`
}

// LedgerNodeClass is nodes that pods cannot tell apart but by what they have left.
type LedgerNodeClass struct {
	// Name of the class, made from what it consists of.
	// +required
	// +kubebuilder:validation:MaxLength=80
	Name string `json:"name"`

	// Labels of the nodes, without the one that names a single node unless a volume asks for that node.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Taints of the nodes.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Allocatable is what each node offers.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Potential tells that the nodes do not exist yet, but could.
	// +optional
	Potential bool `json:"potential,omitempty"`

	// Nodes counts the nodes by what they have left.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Nodes []LedgerNodes `json:"nodes,omitempty"`
}

// LedgerNodes are nodes of a class with the same left. There are many, and a ledger is written often: each is one line of
// text, like "12 cpu=3500m memory=12Gi", which costs an API server a fraction of what an object does.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=1024
type LedgerNodes struct {
	// Count of the nodes.
	Count int32 `json:"-"`

	// Free is the least that each has left.
	Free corev1.ResourceList `json:"-"`

	// Unreadable is why the text tells nothing, empty if it does. Such nodes have nothing left.
	Unreadable string `json:"-"`
}

// LedgerVolumes are claims whose volumes can be reached from the same nodes only.
type LedgerVolumes struct {
	// Reach selects the nodes.
	// +required
	Reach corev1.NodeSelector `json:"reach"`

	// AccessMode is the only one that the volumes can be used in; empty if there are several.
	// +optional
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`

	// Claims that the volumes are bound to, as namespace/name.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	Claims []string `json:"claims"`
}

// LedgerStorageClass is a storage class whose volumes are made in some places only.
type LedgerStorageClass struct {
	// Name of the class.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Default tells that claims which name no class mean this one.
	// +optional
	Default bool `json:"default,omitempty"`

	// Reach selects the nodes that can reach the volumes, wherever they are made.
	// +required
	Reach corev1.NodeSelector `json:"reach"`
}

// Reservation is a promise of room for the pods of a workload. Ledgers hold thousands of them, and only engines and the
// hub manager write them: the API server is spared to look at each field in every write.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Reservation struct {
	// Holder is the cell that made the promise.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Holder string `json:"holder"`

	// Workload that the pods belong to.
	// +required
	Workload WorkloadReference `json:"workload"`

	// Component of the workload, if it has several.
	// +optional
	Component string `json:"component,omitempty"`

	// Total is how many pods the workload will have in the cluster when the promise is fulfilled.
	// +required
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// Pods says where the pods that do not run yet are expected.
	// +optional
	// +listType=map
	// +listMapKey=class
	Pods []ReservedPods `json:"pods,omitempty"`

	// Requests of each pod.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Expires is when the promise ends, whether the pods run or not.
	// +required
	Expires metav1.Time `json:"expires"`

	// Unreadable is why nothing is promised, empty if something is.
	Unreadable string `json:"-"`
}

// ReservedPods are pods that are expected on the nodes of a class.
type ReservedPods struct {
	// Class of the nodes.
	// +required
	// +kubebuilder:validation:MaxLength=80
	Class string `json:"class"`

	// Count of the pods.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
}

// WorkloadReference names a workload in all clusters that run it.
type WorkloadReference struct {
	// Kind of the workload.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Namespace of the workload; empty when it is cluster-scoped.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the workload.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
