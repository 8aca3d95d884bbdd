package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceInterpreterCustomization customizes how the engine interprets a kind, in Lua.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=resourceinterpretercustomizations,scope=Cluster,shortName=ric,categories={karmada-io}
// +kubebuilder:printcolumn:name="TARGET-API-VERSION",type=string,JSONPath=`.spec.target.apiVersion`
// +kubebuilder:printcolumn:name="TARGET-KIND",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="AGE",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreterCustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names the kind and holds the scripts.
	// +required
	Spec ResourceInterpreterCustomizationSpec `json:"spec"`
}

// ResourceInterpreterCustomizationList is a list of ResourceInterpreterCustomization.
//
// +kubebuilder:object:root=true
type ResourceInterpreterCustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceInterpreterCustomization `json:"items"`
}

// ResourceInterpreterCustomizationSpec names a kind and holds scripts for it.
type ResourceInterpreterCustomizationSpec struct {
	// Target is the kind.
	// +required
	Target CustomizationTarget `json:"target"`

	// Customizations are the scripts, by operation.
	// +required
	Customizations CustomizationRules `json:"customizations"`
}

// CustomizationTarget is a kind.
type CustomizationTarget struct {
	// APIVersion of the kind.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind itself.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// CustomizationRules are scripts, by operation. Operations without a script behave as without a customization.
type CustomizationRules struct {
	// Retention keeps fields that the member cluster set.
	// +optional
	Retention *LocalValueRetention `json:"retention,omitempty"`

	// ReplicaResource finds the replicas and what each needs.
	// +optional
	ReplicaResource *ReplicaResourceRequirement `json:"replicaResource,omitempty"`

	// ComponentResource finds the components and what each needs.
	// +optional
	ComponentResource *ComponentResourceRequirement `json:"componentResource,omitempty"`

	// ReplicaRevision sets the replicas.
	// +optional
	ReplicaRevision *ReplicaRevision `json:"replicaRevision,omitempty"`

	// StatusReflection selects the part of the status that is reported.
	// +optional
	StatusReflection *StatusReflection `json:"statusReflection,omitempty"`

	// StatusAggregation merges the clusters' statuses into the template's.
	// +optional
	StatusAggregation *StatusAggregation `json:"statusAggregation,omitempty"`

	// HealthInterpretation decides whether an object is healthy.
	// +optional
	HealthInterpretation *HealthInterpretation `json:"healthInterpretation,omitempty"`

	// DependencyInterpretation finds what an object refers to.
	// +optional
	DependencyInterpretation *DependencyInterpretation `json:"dependencyInterpretation,omitempty"`

	// RolloutInterpretation finds the bounds of a rolling update and how far it is.
	// +optional
	RolloutInterpretation *RolloutInterpretation `json:"rolloutInterpretation,omitempty"`

	// RolloutRevision sets what a cluster may do during a rolling update.
	// +optional
	RolloutRevision *RolloutRevision `json:"rolloutRevision,omitempty"`
}

// LocalValueRetention defines Retain(desiredObj, observedObj), which returns the object to apply.
type LocalValueRetention struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// ReplicaResourceRequirement defines GetReplicas(obj), which returns the replicas and the needs of one.
type ReplicaResourceRequirement struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// ComponentResourceRequirement defines GetComponents(obj), which returns the components.
type ComponentResourceRequirement struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// ReplicaRevision defines ReviseReplica(obj, desiredReplica), which returns the object with that many replicas.
type ReplicaRevision struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// StatusReflection defines ReflectStatus(observedObj), which returns the status to report.
type StatusReflection struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// StatusAggregation defines AggregateStatus(desiredObj, statusItems), which returns the template with its status.
type StatusAggregation struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// HealthInterpretation defines InterpretHealth(observedObj), which returns true for a healthy object.
type HealthInterpretation struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// DependencyInterpretation defines GetDependencies(desiredObj), which returns references.
type DependencyInterpretation struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// RolloutInterpretation defines InterpretRollout(obj), which returns a WorkloadRollout, or nil if the object is not updated step by step.
type RolloutInterpretation struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}

// RolloutRevision defines ReviseRollout(desiredObj, grant), which returns the object with a RolloutGrant.
type RolloutRevision struct {
	// LuaScript is the source.
	// +required
	// +kubebuilder:validation:MinLength=1
	LuaScript string `json:"luaScript"`
}
