package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy changes the copies that templates of its namespace have in member clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=overridepolicies,scope=Namespaced,shortName=op,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type OverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is changed where.
	// +required
	Spec OverrideSpec `json:"spec"`
}

// OverridePolicyList is a list of OverridePolicy.
//
// +kubebuilder:object:root=true
type OverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OverridePolicy `json:"items"`
}

// ClusterOverridePolicy changes the copies that templates of any scope have in member clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusteroverridepolicies,scope=Cluster,shortName=cop,categories={karmada-io}
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterOverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is changed where.
	// +required
	Spec OverrideSpec `json:"spec"`
}

// ClusterOverridePolicyList is a list of ClusterOverridePolicy.
//
// +kubebuilder:object:root=true
type ClusterOverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterOverridePolicy `json:"items"`
}

// OverrideSpec says which copies are changed, and how.
//
// +kubebuilder:validation:XValidation:rule="!has(self.overrideRules) || size(self.overrideRules) == 0 || (!has(self.targetCluster) && (!has(self.overriders) || ((!has(self.overriders.plaintext) || size(self.overriders.plaintext) == 0) && (!has(self.overriders.imageOverrider) || size(self.overriders.imageOverrider) == 0) && (!has(self.overriders.commandOverrider) || size(self.overriders.commandOverrider) == 0) && (!has(self.overriders.argsOverrider) || size(self.overriders.argsOverrider) == 0) && (!has(self.overriders.labelsOverrider) || size(self.overriders.labelsOverrider) == 0) && (!has(self.overriders.annotationsOverrider) || size(self.overriders.annotationsOverrider) == 0) && (!has(self.overriders.fieldOverrider) || size(self.overriders.fieldOverrider) == 0))))",fieldPath=".overrideRules",message="overrideRules exclude targetCluster and overriders"
type OverrideSpec struct {
	// ResourceSelectors select the templates; none selects all.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`

	// OverrideRules are applied in order. They exclude targetCluster and overriders.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	OverrideRules []RuleWithCluster `json:"overrideRules,omitempty"`

	// TargetCluster is the deprecated way of selecting clusters; overrideRules replace it.
	// +optional
	TargetCluster *ClusterAffinity `json:"targetCluster,omitempty"`

	// Overriders is the deprecated way of giving changes; overrideRules replace it.
	// +optional
	Overriders Overriders `json:"overriders,omitzero"`
}

// RuleWithCluster gives changes for some clusters.
type RuleWithCluster struct {
	// TargetCluster selects the clusters; none selects all.
	// +optional
	TargetCluster *ClusterAffinity `json:"targetCluster,omitempty"`

	// Overriders are the changes.
	// +required
	Overriders Overriders `json:"overriders"`
}

// Overriders are changes to a copy, by kind of change.
type Overriders struct {
	// Plaintext changes any field, by JSON pointer.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Plaintext []PlaintextOverrider `json:"plaintext,omitempty"`

	// ImageOverrider changes parts of image names.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ImageOverrider []ImageOverrider `json:"imageOverrider,omitempty"`

	// CommandOverrider changes the command of containers.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	CommandOverrider []CommandArgsOverrider `json:"commandOverrider,omitempty"`

	// ArgsOverrider changes the arguments of containers.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ArgsOverrider []CommandArgsOverrider `json:"argsOverrider,omitempty"`

	// LabelsOverrider changes labels.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	LabelsOverrider []LabelAnnotationOverrider `json:"labelsOverrider,omitempty"`

	// AnnotationsOverrider changes annotations.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	AnnotationsOverrider []LabelAnnotationOverrider `json:"annotationsOverrider,omitempty"`

	// FieldOverrider changes JSON or YAML documents that are held in a string field.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	FieldOverrider []FieldOverrider `json:"fieldOverrider,omitempty"`
}

// OverriderOperator is what an overrider does with its value.
type OverriderOperator string

// The operators of overriders.
const (
	OverriderOpAdd     OverriderOperator = "add"
	OverriderOpRemove  OverriderOperator = "remove"
	OverriderOpReplace OverriderOperator = "replace"
)

// LabelAnnotationOverrider changes a map of labels or annotations. Replace touches only keys that exist.
type LabelAnnotationOverrider struct {
	// Operator is what is done.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value holds the keys and their values; remove looks at the keys only.
	// +required
	Value map[string]string `json:"value"`
}

// ImageComponent is a part of an image name of the form "[registry/]repository[:tag]".
type ImageComponent string

// The parts of an image name. A digest counts as tag.
const (
	ImageComponentRegistry   ImageComponent = "Registry"
	ImageComponentRepository ImageComponent = "Repository"
	ImageComponentTag        ImageComponent = "Tag"
)

// ImageOverrider changes one part of image names.
//
// +kubebuilder:validation:XValidation:rule="self.operator == 'remove' || (has(self.value) && size(self.value) > 0)",fieldPath=".value",message="value must be given unless operator is remove"
type ImageOverrider struct {
	// Predicate points at one image. Without it all images of the containers of a workload are changed.
	// +optional
	Predicate *ImagePredicate `json:"predicate,omitempty"`

	// Component is the part that is changed.
	// +required
	// +kubebuilder:validation:Enum=Registry;Repository;Tag
	Component ImageComponent `json:"component"`

	// Operator is what is done with the part.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is the new part, or what is appended to it. Remove needs none.
	// +optional
	Value string `json:"value,omitempty"`
}

// ImagePredicate points at one image.
type ImagePredicate struct {
	// Path is a JSON pointer to a string field.
	// +required
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
}

// CommandArgsOverrider changes the command or the arguments of one container.
type CommandArgsOverrider struct {
	// ContainerName names the container.
	// +required
	ContainerName string `json:"containerName"`

	// Operator appends the values or removes equal ones.
	// +required
	// +kubebuilder:validation:Enum=add;remove
	Operator OverriderOperator `json:"operator"`

	// Value is what is appended or removed.
	// +optional
	Value []string `json:"value,omitempty"`
}

// PlaintextOverrider changes one field, as an operation of RFC 6902 does.
type PlaintextOverrider struct {
	// Path is a JSON pointer to the field.
	// +required
	Path string `json:"path"`

	// Operator is what is done.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is the new value. Remove needs none.
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitzero"`
}

// FieldOverrider changes a document held in a string field. Exactly one of json and yaml is given.
//
// +kubebuilder:validation:XValidation:rule="!has(self.json) || size(self.json) == 0 || !has(self.yaml) || size(self.yaml) == 0",fieldPath=".fieldPath",message="json and yaml exclude each other"
type FieldOverrider struct {
	// FieldPath is a JSON pointer to the string field.
	// +required
	// +kubebuilder:validation:Pattern=`^/`
	FieldPath string `json:"fieldPath"`

	// JSON holds operations on a JSON document.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	JSON []JSONPatchOperation `json:"json,omitempty"`

	// YAML holds operations on a YAML document.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	YAML []YAMLPatchOperation `json:"yaml,omitempty"`
}

// JSONPatchOperation changes one field of a JSON document.
type JSONPatchOperation struct {
	// SubPath is a JSON pointer within the document.
	// +required
	// +kubebuilder:validation:Pattern=`^/`
	SubPath string `json:"subPath"`

	// Operator is what is done.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is the new value. Remove needs none.
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitzero"`
}

// YAMLPatchOperation changes one field of a YAML document.
type YAMLPatchOperation struct {
	// SubPath is a JSON pointer within the document.
	// +required
	// +kubebuilder:validation:Pattern=`^/`
	SubPath string `json:"subPath"`

	// Operator is what is done.
	// +required
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`

	// Value is the new value. Remove needs none.
	// +optional
	Value apiextensionsv1.JSON `json:"value,omitzero"`
}
