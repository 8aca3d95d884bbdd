package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterLedger is the free capacity of a member and the reservations in it. It has the name of its Cluster and
// lives on the hub. Capacity and reservations are one object and every change is a compare-and-swap, so no capacity
// is reserved twice, and a reservation ends in the same write that counts its pods as running.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterledgers,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="Observed",type=date,JSONPath=`.observedAt`
// +kubebuilder:printcolumn:name="Reserving",type=string,JSONPath=`.reservations[*].workload.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterLedger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Classes are the nodes, grouped by their properties.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Classes []LedgerNodeClass `json:"classes,omitempty"`

	// Volumes are the claims bound to volumes that not all nodes can reach.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Volumes []LedgerVolumes `json:"volumes,omitempty"`

	// StorageClasses are those whose volumes not all nodes can reach.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []LedgerStorageClass `json:"storageClasses,omitempty"`

	// Quotas are what the ResourceQuotas of namespaces leave to pods. Pods that have a reservation and no node yet are not
	// subtracted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Quotas []LedgerQuota `json:"quotas,omitempty"`

	// Revision counts changes of the classes, the volumes, the storage classes or the quotas.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// ObservedAt is the time of the last change.
	// +optional
	ObservedAt metav1.Time `json:"observedAt,omitzero"`

	// Holders are all that may make reservations. While the hub is unreachable, each uses an equal share of the
	// free capacity only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Holders []string `json:"holders,omitempty"`

	// Reservations whose pods do not run yet.
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

// LedgerNodeClass is a set of nodes that differ only in their free resources.
type LedgerNodeClass struct {
	// Name of the class, derived from its properties.
	// +required
	// +kubebuilder:validation:MaxLength=80
	Name string `json:"name"`

	// Labels of the nodes, without the hostname unless a volume names the node.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Taints of the nodes.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Allocatable resources of each node.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Potential means that the nodes do not exist yet but could be added.
	// +optional
	Potential bool `json:"potential,omitempty"`

	// Nodes of the class, grouped by their free resources.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Nodes []LedgerNodes `json:"nodes,omitempty"`
}

// LedgerNodes is a number of nodes with the same free resources. Ledgers have many of them and are written often,
// so each is one line of text like "12 cpu=3500m memory=12Gi", which costs an API server a fraction of an object.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=1024
type LedgerNodes struct {
	// Count of the nodes.
	Count int32 `json:"-"`

	// Free is the minimum that each node has free.
	Free corev1.ResourceList `json:"-"`

	// Unreadable is the error if the text is invalid, otherwise empty. Such nodes have no free resources.
	Unreadable string `json:"-"`
}

// LedgerVolumes is a set of claims whose volumes are reachable from the same nodes only.
type LedgerVolumes struct {
	// Reach selects the nodes.
	// +required
	Reach corev1.NodeSelector `json:"reach"`

	// AccessMode is the only access mode of the volumes; empty if there are several.
	// +optional
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`

	// Claims that the volumes are bound to, as namespace/name.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	Claims []string `json:"claims"`
}

// LedgerStorageClass is a storage class whose volumes not all nodes can reach.
type LedgerStorageClass struct {
	// Name of the class.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Default means that claims without a class use this one.
	// +optional
	Default bool `json:"default,omitempty"`

	// Reach selects the nodes that can reach the volumes.
	// +required
	Reach corev1.NodeSelector `json:"reach"`
}

// LedgerQuota is what a ResourceQuota leaves to the pods of a namespace.
type LedgerQuota struct {
	// Namespace of the pods.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Scopes select the pods that the quota counts; all pods if there are none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Scopes []corev1.ScopedResourceSelectorRequirement `json:"scopes,omitempty"`

	// Left is what more pods may request. It is negative if more is used than allowed.
	// +optional
	Left corev1.ResourceList `json:"left,omitempty"`
}

// Reservation is capacity reserved for the pods of a workload. A ledger holds thousands of them, written by engines
// and the hub manager only, so the API server does not validate their fields in every write.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Reservation struct {
	// Holder is the cell that made the reservation.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Holder string `json:"holder"`

	// Workload that the pods belong to.
	// +required
	Workload WorkloadReference `json:"workload"`

	// Component of the workload, if it has several.
	// +optional
	Component string `json:"component,omitempty"`

	// Total is the number of pods of the workload in the cluster once all of them run.
	// +required
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// Pods are the pods that do not run yet, by class of nodes.
	// +optional
	// +listType=map
	// +listMapKey=class
	Pods []ReservedPods `json:"pods,omitempty"`

	// Requests of each pod.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// PriorityClass of the pods.
	// +optional
	PriorityClass string `json:"priorityClass,omitempty"`

	// Expires is when the reservation ends even if the pods do not run.
	// +required
	Expires metav1.Time `json:"expires"`

	// Unreadable is the error if the reservation is invalid, otherwise empty.
	Unreadable string `json:"-"`
}

// ReservedPods is a number of pods expected on the nodes of a class.
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

// WorkloadReference names a workload. It is the same in all clusters.
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
