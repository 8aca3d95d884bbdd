package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is the kind of CellControlPlane.
const Kind = "CellControlPlane"

// CellControlPlane is the control plane of a cell: an etcd, API servers and engines. It is a control plane of Cluster API, and the cell has the name
// of the Cluster that owns it.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=cellcontrolplanes,shortName=ccp,scope=Namespaced,categories={cluster-api,cellplane}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.ownerReferences[?(@.kind=="Cluster")].name`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="In-Topology",type=string,JSONPath=`.status.conditions[?(@.type=="InTopology")].status`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CellControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what runs.
	// +required
	Spec CellControlPlaneSpec `json:"spec"`

	// Status is what is observed.
	// +optional
	Status CellControlPlaneStatus `json:"status,omitzero"`
}

// CellControlPlaneList is a list of CellControlPlane.
//
// +kubebuilder:object:root=true
type CellControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CellControlPlane `json:"items"`
}

// CellControlPlaneSpec says what runs.
//
// +kubebuilder:validation:XValidation:rule="(has(self.etcd) && has(self.etcd.replicas) ? self.etcd.replicas : 0) == (has(oldSelf.etcd) && has(oldSelf.etcd.replicas) ? oldSelf.etcd.replicas : 0)",fieldPath=".etcd",message="etcd.replicas cannot be changed: make another cell, and drain this one"
type CellControlPlaneSpec struct {
	CellSettings `json:",inline"`

	// Version of Kubernetes, which is that of the API servers. It is the tag of their image.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`
	Version string `json:"version"`

	// Replicas is the number of API servers.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=2
	Replicas *int32 `json:"replicas,omitempty"`

	// ControlPlaneEndpoint is the address of the API servers. The controller sets it.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitzero"`
}

// CellSettings are what a CellControlPlane and a template have in common. What is not set is as in cellDefaults of the installation.
type CellSettings struct {
	// Weight is the share of the cell when it joins the topology, relative to the other cells. Later the topology counts.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1
	Weight int32 `json:"weight,omitempty"`

	// Etcd is the store of the cell.
	// +optional
	Etcd EtcdSettings `json:"etcd,omitzero"`

	// APIServer are the API servers of the cell.
	// +optional
	APIServer ProgramSettings `json:"apiServer,omitzero"`

	// Engine are the engines of the cell, one of which leads.
	// +optional
	Engine EngineSettings `json:"engine,omitzero"`
}

// EtcdSettings are those of a store.
type EtcdSettings struct {
	// Replicas is the number of members. It cannot be changed.
	// +optional
	// +kubebuilder:validation:Enum=1;3;5
	Replicas *int32 `json:"replicas,omitempty"`

	// Storage is the size of the volume of each member.
	// +optional
	Storage *resource.Quantity `json:"storage,omitempty"`

	// StorageClassName is the class of the volumes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName string `json:"storageClassName,omitempty"`

	ProgramSettings `json:",inline"`
}

// EngineSettings are those of engines.
type EngineSettings struct {
	// Replicas is the number of engines.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Replicas *int32 `json:"replicas,omitempty"`

	ProgramSettings `json:",inline"`
}

// ProgramSettings are those of a program.
type ProgramSettings struct {
	// Resources of each pod.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are more arguments.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// APIEndpoint is where API servers are reached.
//
// +kubebuilder:validation:MinProperties=1
type APIEndpoint struct {
	// Host is a host name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`

	// Port is a port of the host.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// CellControlPlaneStatus is what is observed of a CellControlPlane. All numbers are those of API servers.
type CellControlPlaneStatus struct {
	// ObservedGeneration is the generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Available, Applied, CertificatesAvailable, EtcdClusterAvailable, InTopology, RollingOut, ScalingUp, ScalingDown, Paused and
	// Deleting.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Initialization is what Cluster API waits for.
	// +optional
	Initialization Initialization `json:"initialization,omitzero"`

	// ExternalManagedControlPlane says that the control plane has no Nodes.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`

	// Selector selects the pods.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Replicas is the number of pods.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// ReadyReplicas is the number of those that are ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// AvailableReplicas is the number of those that are available.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`

	// UpToDateReplicas is the number of those that are as the specification says.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`

	// Version is the lowest version of Kubernetes that runs.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// DrainedTime is when the cell was seen to have left the topology, while it is deleted.
	// +optional
	DrainedTime *metav1.Time `json:"drainedTime,omitempty"`
}

// Initialization is what Cluster API waits for.
//
// +kubebuilder:validation:MinProperties=1
type Initialization struct {
	// ControlPlaneInitialized is true once an API server has answered.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}

// Conditions of a CellControlPlane.
const (
	// ConditionAvailable reports whether the API servers answer.
	ConditionAvailable = "Available"
	// ConditionApplied reports whether what the specification says has been applied.
	ConditionApplied = "Applied"
	// ConditionCertificatesAvailable reports whether all certificates are issued.
	ConditionCertificatesAvailable = "CertificatesAvailable"
	// ConditionEtcdClusterAvailable reports whether a majority of the members of etcd is ready.
	ConditionEtcdClusterAvailable = "EtcdClusterAvailable"
	// ConditionInTopology reports whether the cell holds its share of the objects.
	ConditionInTopology = "InTopology"
	// ConditionRollingOut reports whether pods are being replaced.
	ConditionRollingOut = "RollingOut"
	// ConditionScalingUp reports whether API servers are added.
	ConditionScalingUp = "ScalingUp"
	// ConditionScalingDown reports whether API servers are removed.
	ConditionScalingDown = "ScalingDown"
	// ConditionPaused reports whether nothing is done.
	ConditionPaused = "Paused"
	// ConditionDeleting reports how far a deletion is, and what it waits for.
	ConditionDeleting = "Deleting"
)
