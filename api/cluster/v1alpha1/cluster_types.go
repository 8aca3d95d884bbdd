package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is a member of the federation. Its subresource proxy leads to the member's API server.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusters,scope=Cluster,categories={karmada-io}
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.syncMode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="APIEndpoint",type=string,priority=1,JSONPath=`.spec.apiEndpoint`
// +kubebuilder:printcolumn:name="Provider",type=string,priority=1,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Region",type=string,priority=1,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Zones",type=string,priority=1,JSONPath=`.spec.zones`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 48",message="metadata.name must be a DNS label of at most 48 characters, as it becomes part of other names"
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says how the cluster is reached and described.
	// +required
	Spec ClusterSpec `json:"spec"`

	// Status is the state of the cluster.
	// +optional
	Status ClusterStatus `json:"status,omitzero"`
}

// ClusterList is a list of Cluster.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec says how a cluster is reached and described.
type ClusterSpec struct {
	// ID is the UID of the cluster's kube-system namespace, which no two members share.
	// +optional
	ID string `json:"id,omitempty"`

	// SyncMode says how changes reach the cluster: the control plane pushes, or an agent in the cluster pulls.
	// +required
	// +kubebuilder:validation:Enum=Push;Pull
	SyncMode ClusterSyncMode `json:"syncMode"`

	// APIEndpoint is the https URL of the cluster's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (isURL(self) && url(self).getScheme() == 'https' && size(url(self).getHost()) > 0)",message="apiEndpoint must be an https URL with a host"
	APIEndpoint string `json:"apiEndpoint,omitempty"`

	// SecretRef holds the credentials, as token and caBundle.
	// +optional
	SecretRef *LocalSecretReference `json:"secretRef,omitempty"`

	// ImpersonatorSecretRef holds the token of an identity that may impersonate callers of the proxy.
	// +optional
	ImpersonatorSecretRef *LocalSecretReference `json:"impersonatorSecretRef,omitempty"`

	// InsecureSkipTLSVerification does not check the cluster's serving certificate.
	// +optional
	InsecureSkipTLSVerification bool `json:"insecureSkipTLSVerification,omitempty"`

	// ProxyURL is an http, https or socks5 proxy on the way to the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || (isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] && size(url(self).getHost()) > 0)",message="proxyURL must be an http, https or socks5 URL with a host"
	ProxyURL string `json:"proxyURL,omitempty"`

	// ProxyHeader are headers sent to that proxy.
	// +optional
	ProxyHeader map[string]string `json:"proxyHeader,omitempty"`

	// Provider of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Provider string `json:"provider,omitempty"`

	// Region of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Region string `json:"region,omitempty"`

	// Zone is the deprecated way of giving one zone; zones replace it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Zone string `json:"zone,omitempty"`

	// Zones the cluster's nodes are in.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Zones []string `json:"zones,omitempty"`

	// Taints keep off workloads that do not tolerate them.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(t, size(t.key) > 0 && t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="taints need a key, and an effect of NoSchedule, PreferNoSchedule or NoExecute"
	Taints []corev1.Taint `json:"taints,omitempty"`

	// ResourceModels sort the cluster's nodes into grades by size. All models have ranges for the same resources, grade
	// follows on grade without a gap, the lowest begins at 0 and the highest ends at 9223372036854775807.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:default={{grade: 0, ranges: {{name: "cpu", min: "0", max: "1"}, {name: "memory", min: "0", max: "4Gi"}}}, {grade: 1, ranges: {{name: "cpu", min: "1", max: "2"}, {name: "memory", min: "4Gi", max: "16Gi"}}}, {grade: 2, ranges: {{name: "cpu", min: "2", max: "4"}, {name: "memory", min: "16Gi", max: "32Gi"}}}, {grade: 3, ranges: {{name: "cpu", min: "4", max: "8"}, {name: "memory", min: "32Gi", max: "64Gi"}}}, {grade: 4, ranges: {{name: "cpu", min: "8", max: "16"}, {name: "memory", min: "64Gi", max: "128Gi"}}}, {grade: 5, ranges: {{name: "cpu", min: "16", max: "32"}, {name: "memory", min: "128Gi", max: "256Gi"}}}, {grade: 6, ranges: {{name: "cpu", min: "32", max: "64"}, {name: "memory", min: "256Gi", max: "512Gi"}}}, {grade: 7, ranges: {{name: "cpu", min: "64", max: "128"}, {name: "memory", min: "512Gi", max: "1Ti"}}}, {grade: 8, ranges: {{name: "cpu", min: "128", max: "9223372036854775807"}, {name: "memory", min: "1Ti", max: "9223372036854775807"}}}}
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.grade < size(self) && self.exists_one(n, n.grade == m.grade))",message="resourceModels: grade must count from 0 upwards without gaps"
	// +kubebuilder:validation:XValidation:rule="self.all(m, size(m.ranges) == size(self[0].ranges) && m.ranges.all(r, self[0].ranges.exists(q, q.name == r.name)))",message="resourceModels: every grade needs ranges for the same resources"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.grade == 0 || self.exists(n, n.grade == m.grade - 1 && m.ranges.all(r, n.ranges.exists(q, q.name == r.name && quantity(string(q.max)).compareTo(quantity(string(r.min))) == 0))))",message="resourceModels: min of a grade must be max of the grade below"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.grade != 0 || m.ranges.all(r, quantity(string(r.min)).compareTo(quantity('0')) == 0))",message="resourceModels: min of grade 0 must be 0"
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.grade != size(self) - 1 || m.ranges.all(r, quantity(string(r.max)).compareTo(quantity('9223372036854775807')) == 0))",message="resourceModels: max of the highest grade must be 9223372036854775807"
	ResourceModels []ResourceModel `json:"resourceModels,omitempty"`
}

// ClusterSyncMode says how changes reach a cluster.
type ClusterSyncMode string

const (
	// Push lets the control plane connect to the cluster.
	Push ClusterSyncMode = "Push"
	// Pull lets an agent in the cluster connect to the control plane.
	Pull ClusterSyncMode = "Pull"
)

// LocalSecretReference points at a Secret.
type LocalSecretReference struct {
	// Namespace of the Secret.
	// +required
	Namespace string `json:"namespace"`

	// Name of the Secret.
	// +required
	Name string `json:"name"`
}

// ResourceModel is one grade of nodes.
type ResourceModel struct {
	// Grade is the model's position, from zero.
	// +required
	// +kubebuilder:validation:Minimum=0
	Grade int `json:"grade"`

	// Ranges bound the grade by resource.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Ranges []ResourceModelRange `json:"ranges"`
}

// ResourceModelRange is the half-open range [min, max) of one resource.
//
// +kubebuilder:validation:XValidation:rule="quantity(string(self.min)).isLessThan(quantity(string(self.max)))",fieldPath=".min",message="min must be less than max"
type ResourceModelRange struct {
	// Name of the resource.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Name corev1.ResourceName `json:"name"`

	// Min is the smallest amount of the grade.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=48
	Min resource.Quantity `json:"min"`

	// Max is the smallest amount above the grade.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=48
	Max resource.Quantity `json:"max"`
}

// ClusterStatus is the state of a cluster.
type ClusterStatus struct {
	// KubernetesVersion of the cluster's API server.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// APIEnablements are the APIs the cluster serves.
	// +optional
	APIEnablements []APIEnablement `json:"apiEnablements,omitempty"`

	// Conditions of the cluster, Ready among them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// NodeSummary counts the nodes.
	// +optional
	NodeSummary *NodeSummary `json:"nodeSummary,omitempty"`

	// ResourceSummary adds up what the nodes offer and what is taken.
	// +optional
	ResourceSummary *ResourceSummary `json:"resourceSummary,omitempty"`

	// RemedyActions are the actions that remedies ask for.
	// +optional
	RemedyActions []string `json:"remedyActions,omitempty"`
}

// APIEnablement is what a cluster serves of one group and version.
type APIEnablement struct {
	// GroupVersion as "group/version" or "v1".
	// +required
	GroupVersion string `json:"groupVersion"`

	// Resources served.
	// +optional
	Resources []APIResource `json:"resources,omitempty"`
}

// APIResource is a resource and its kind.
type APIResource struct {
	// Name of the resource, in plural.
	// +required
	Name string `json:"name"`

	// Kind of the resource.
	// +required
	Kind string `json:"kind"`
}

// NodeSummary counts nodes.
type NodeSummary struct {
	// TotalNum is how many there are.
	// +optional
	TotalNum int32 `json:"totalNum,omitempty"`

	// ReadyNum is how many are ready.
	// +optional
	ReadyNum int32 `json:"readyNum,omitempty"`
}

// ResourceSummary adds up resources over all nodes.
type ResourceSummary struct {
	// Allocatable is what the nodes offer.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// Allocating is what pods ask for that are not scheduled yet.
	// +optional
	Allocating corev1.ResourceList `json:"allocating,omitempty"`

	// Allocated is what scheduled pods ask for.
	// +optional
	Allocated corev1.ResourceList `json:"allocated,omitempty"`

	// AllocatableModelings counts the nodes of each grade.
	// +optional
	AllocatableModelings []AllocatableModeling `json:"allocatableModelings,omitempty"`
}

// AllocatableModeling counts the nodes of one grade.
type AllocatableModeling struct {
	// Grade of the nodes.
	// +required
	// +kubebuilder:validation:Minimum=0
	Grade int `json:"grade"`

	// Count of the nodes.
	// +required
	Count int `json:"count"`
}

// ClusterProxyOptions is the query of a request to the subresource proxy.
//
// +kubebuilder:object:root=true
type ClusterProxyOptions struct {
	metav1.TypeMeta `json:",inline"`

	// Path within the member's API.
	// +optional
	Path string `json:"path,omitempty"`
}
