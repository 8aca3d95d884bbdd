package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceSelector selects templates of one kind. A name takes precedence over a label selector; with neither, every
// object of the kind is selected.
type ResourceSelector struct {
	// APIVersion of the templates, as "group/version" or "v1".
	// +required
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind of the templates.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Namespace of the templates. A namespaced policy reaches its own namespace only.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of a single template.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// LabelSelector selects templates by label. It is not consulted when a name is given.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ClusterAffinity selects member clusters. All parts must agree; an empty affinity selects every cluster, and an
// exclusion always wins.
type ClusterAffinity struct {
	// LabelSelector selects clusters by label.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`

	// FieldSelector selects clusters by provider, region or zone.
	// +optional
	FieldSelector *FieldSelector `json:"fieldSelector,omitempty"`

	// ClusterNames lists clusters by name.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	ClusterNames []string `json:"clusterNames,omitempty"`

	// ExcludeClusters lists clusters that are never selected.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// FieldSelector selects clusters by fields of their spec.
type FieldSelector struct {
	// MatchExpressions are requirements on the fields provider, region and zone with the operators In and NotIn.
	// All of them must hold.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.key in ['provider', 'region', 'zone'] && e.operator in ['In', 'NotIn'])",message="matchExpressions of a fieldSelector need the key provider, region or zone and the operator In or NotIn"
	MatchExpressions []corev1.NodeSelectorRequirement `json:"matchExpressions,omitempty"`
}
