package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ServedAPI limits the API that gateways serve to the users of some groups. These users see and use only the listed
// resources and verbs: discovery and OpenAPI leave out the rest, and requests for it are answered as for an unknown
// resource. Users of several ServedAPIs are served all that these list together. Users that no ServedAPI names,
// administrators and the components of the control plane are not limited. RBAC must allow a request as well.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=servedapis,scope=Cluster,categories={cellplane}
// +kubebuilder:printcolumn:name="User-Groups",type=string,JSONPath=`.spec.userGroups`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ServedAPI struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is served to whom.
	// +required
	Spec ServedAPISpec `json:"spec"`
}

// ServedAPIList is a list of ServedAPI.
//
// +kubebuilder:object:root=true
type ServedAPIList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServedAPI `json:"items"`
}

// ServedAPISpec says what is served to whom.
type ServedAPISpec struct {
	// UserGroups are the groups of users whose API is limited, such as those given with `cellplane user create --group`.
	// system:authenticated means all users, system:serviceaccounts all service accounts.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!('system:masters' in self)",message="userGroups: system:masters are administrators, whose API is never limited"
	// +kubebuilder:validation:XValidation:rule="!('*' in self)",message="userGroups: * is not a group; system:authenticated has all users"
	UserGroups []string `json:"userGroups"`

	// Rules list what is served.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []ServedResources `json:"rules"`
}

// ServedResources are resources that are served, and the verbs for them. All versions of a resource are served.
type ServedResources struct {
	// APIGroups of the resources; the core group is "", and "*" stands alone for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="apiGroups: * stands alone"
	// +kubebuilder:validation:XValidation:rule="self.all(g, g == '*' || g.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$'))",message="apiGroups: a group is named without its version and in lower case, such as apps; the core group is empty"
	APIGroups []string `json:"apiGroups"`

	// Resources by their plural names. Subresources are named as in RBAC, such as pods/log or */scale, and are not
	// part of the resource; "*" stands alone for all resources and subresources.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="resources: * stands alone"
	// +kubebuilder:validation:XValidation:rule="self.all(r, r.matches('^([*]|[a-z0-9-]+)(/[a-z0-9-]+)?$'))",message="resources: a resource is a plural name in lower case, such as pods, pods/log or */scale"
	Resources []string `json:"resources"`

	// Verbs as in RBAC; "*" stands alone for all.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:Enum=get;list;watch;create;update;patch;delete;deletecollection;"*"
	// +kubebuilder:validation:XValidation:rule="!('*' in self) || size(self) == 1",message="verbs: * stands alone"
	Verbs []string `json:"verbs"`
}
