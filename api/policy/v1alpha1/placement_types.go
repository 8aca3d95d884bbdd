package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Placement says which clusters may hold a template and how its replicas are shared among them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.clusterAffinity) || !has(self.clusterAffinities) || size(self.clusterAffinities) == 0",fieldPath=".clusterAffinities",message="clusterAffinity and clusterAffinities exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterAffinities) || !self.clusterAffinities.exists(t, has(t.overflowAffinities) && size(t.overflowAffinities) > 0) || (has(self.replicaScheduling) && self.replicaScheduling.replicaSchedulingType == 'Divided' && ((has(self.replicaScheduling.replicaDivisionPreference) && self.replicaScheduling.replicaDivisionPreference == 'Aggregated') || (has(self.replicaScheduling.weightPreference) && has(self.replicaScheduling.weightPreference.dynamicWeight))))",fieldPath=".clusterAffinities",message="overflowAffinities need replicas that are Divided and either Aggregated or shared by dynamicWeight"
type Placement struct {
	// ClusterAffinity selects the candidate clusters. It excludes clusterAffinities.
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`

	// ClusterAffinities are alternative sets of candidates, tried in order until one can hold the workload. They
	// exclude clusterAffinity.
	// +optional
	// +listType=map
	// +listMapKey=affinityName
	// +kubebuilder:validation:MaxItems=64
	ClusterAffinities []ClusterAffinityTerm `json:"clusterAffinities,omitempty"`

	// ClusterTolerations allow clusters with matching taints. The operators are Exists and Equal.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['Exists', 'Equal'] || size(t.operator) == 0)",message="clusterTolerations: operator must be Exists or Equal"
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations,omitempty"`

	// SpreadConstraints limit over how many groups of clusters the workload is spread.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="!self.exists(c, has(c.spreadByField) && c.spreadByField != 'cluster') || self.exists(c, has(c.spreadByField) ? c.spreadByField == 'cluster' : !has(c.spreadByLabel) || size(c.spreadByLabel) == 0)",message="spreadConstraints with a spreadByField need one that spreads by cluster"
	SpreadConstraints []SpreadConstraint `json:"spreadConstraints,omitempty"`

	// ReplicaScheduling says how replicas are divided. Without it, every cluster runs all of them.
	// +optional
	ReplicaScheduling *ReplicaSchedulingStrategy `json:"replicaScheduling,omitempty"`

	// WorkloadAffinity keeps workloads of one group together, or apart.
	// +optional
	WorkloadAffinity *WorkloadAffinity `json:"workloadAffinity,omitempty"`
}

// ClusterAffinityTerm is a named group of candidate clusters.
//
// +kubebuilder:validation:XValidation:rule="!has(self.overflowAffinities) || size(self.overflowAffinities) == 0 || has(self.labelSelector) || has(self.fieldSelector) || (has(self.clusterNames) && size(self.clusterNames) > 0) || (has(self.exclude) && size(self.exclude) > 0)",fieldPath=".overflowAffinities",message="overflowAffinities need a group that does not already pick every cluster"
type ClusterAffinityTerm struct {
	// AffinityName names the group; it is unique within its placement.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	AffinityName string `json:"affinityName"`

	ClusterAffinity `json:",inline"`

	// OverflowAffinities are further clusters, used tier by tier when the group is full and emptied in reverse
	// order when the workload is scaled down.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	OverflowAffinities []OverflowClusterAffinity `json:"overflowAffinities,omitempty"`
}

// OverflowClusterAffinity is one tier of clusters that takes what its group cannot hold.
type OverflowClusterAffinity struct {
	// AffinityName names the tier.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	AffinityName string `json:"affinityName"`

	ClusterAffinity `json:",inline"`
}

// SpreadFieldValue is a field of Cluster by which clusters are grouped.
type SpreadFieldValue string

// The fields by which clusters can be grouped.
const (
	SpreadByFieldCluster  SpreadFieldValue = "cluster"
	SpreadByFieldRegion   SpreadFieldValue = "region"
	SpreadByFieldZone     SpreadFieldValue = "zone"
	SpreadByFieldProvider SpreadFieldValue = "provider"
)

// SpreadConstraint groups clusters by a field or a label and limits how many groups are used.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spreadByField) || !has(self.spreadByLabel) || size(self.spreadByLabel) == 0",fieldPath=".spreadByLabel",message="spreadByField and spreadByLabel exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.maxGroups) || self.maxGroups == 0 || !has(self.minGroups) || self.maxGroups >= self.minGroups",fieldPath=".maxGroups",message="maxGroups must not be less than minGroups"
type SpreadConstraint struct {
	// SpreadByField groups clusters by a field. It excludes spreadByLabel; with neither, clusters are counted
	// one by one.
	// +optional
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	SpreadByField SpreadFieldValue `json:"spreadByField,omitempty"`

	// SpreadByLabel groups clusters by the value of this label.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	SpreadByLabel string `json:"spreadByLabel,omitempty"`

	// MaxGroups is the largest number of groups used; zero sets no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxGroups int `json:"maxGroups,omitempty"`

	// MinGroups is the smallest number of groups used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=1
	MinGroups int `json:"minGroups,omitempty"`
}

// ReplicaSchedulingType says whether clusters repeat or share the replicas of a template.
type ReplicaSchedulingType string

const (
	// ReplicaSchedulingTypeDuplicated gives every selected cluster all replicas.
	ReplicaSchedulingTypeDuplicated ReplicaSchedulingType = "Duplicated"
	// ReplicaSchedulingTypeDivided gives every selected cluster a share of the replicas.
	ReplicaSchedulingTypeDivided ReplicaSchedulingType = "Divided"
)

// ReplicaDivisionPreference says how divided replicas are shared.
type ReplicaDivisionPreference string

const (
	// ReplicaDivisionPreferenceAggregated packs replicas into as few clusters as can hold them.
	ReplicaDivisionPreferenceAggregated ReplicaDivisionPreference = "Aggregated"
	// ReplicaDivisionPreferenceWeighted shares replicas in proportion to weights.
	ReplicaDivisionPreferenceWeighted ReplicaDivisionPreference = "Weighted"
)

// ReplicaSchedulingStrategy says how replicas are shared among the chosen clusters.
type ReplicaSchedulingStrategy struct {
	// ReplicaSchedulingType duplicates the replicas in every cluster or divides them.
	// +optional
	// +kubebuilder:validation:Enum=Duplicated;Divided
	// +kubebuilder:default=Divided
	ReplicaSchedulingType ReplicaSchedulingType `json:"replicaSchedulingType,omitempty"`

	// ReplicaDivisionPreference says how divided replicas are shared; unset means Weighted.
	// +optional
	// +kubebuilder:validation:Enum=Aggregated;Weighted
	ReplicaDivisionPreference ReplicaDivisionPreference `json:"replicaDivisionPreference,omitempty"`

	// WeightPreference gives the weights. Without it all clusters weigh the same.
	// +optional
	WeightPreference *ClusterPreferences `json:"weightPreference,omitempty"`
}

// ClusterPreferences are the weights of clusters, fixed or computed.
type ClusterPreferences struct {
	// StaticWeightList gives fixed weights. A cluster takes the highest weight that matches it, and none if
	// nothing does.
	// +optional
	// +kubebuilder:validation:MaxItems=1000
	StaticWeightList []StaticClusterWeight `json:"staticWeightList,omitempty"`

	// DynamicWeight computes the weights while scheduling; the static list is then ignored.
	// +optional
	// +kubebuilder:validation:Enum=AvailableReplicas
	DynamicWeight DynamicWeightFactor `json:"dynamicWeight,omitempty"`
}

// StaticClusterWeight gives a weight to the clusters it selects.
type StaticClusterWeight struct {
	// TargetCluster selects the clusters.
	// +required
	TargetCluster ClusterAffinity `json:"targetCluster"`

	// Weight of each of these clusters.
	// +required
	// +kubebuilder:validation:Minimum=1
	Weight int64 `json:"weight"`
}

// DynamicWeightFactor is a quantity that weights are computed from.
type DynamicWeightFactor string

// DynamicWeightByAvailableReplicas weighs a cluster by how many more replicas it could hold.
const DynamicWeightByAvailableReplicas DynamicWeightFactor = "AvailableReplicas"

// WorkloadAffinity relates a workload to others of its namespace that share a label value.
//
// +kubebuilder:validation:XValidation:rule="!has(self.affinity) || !has(self.antiAffinity) || self.affinity.groupByLabelKey != self.antiAffinity.groupByLabelKey",fieldPath=".antiAffinity",message="affinity and antiAffinity need different values of groupByLabelKey"
type WorkloadAffinity struct {
	// Affinity keeps the workloads of a group in the same clusters.
	// +optional
	Affinity *WorkloadAffinityTerm `json:"affinity,omitempty"`

	// AntiAffinity keeps the workloads of a group in different clusters.
	// +optional
	AntiAffinity *WorkloadAntiAffinityTerm `json:"antiAffinity,omitempty"`
}

// WorkloadAffinityTerm names the label whose value makes the group that stays together.
type WorkloadAffinityTerm struct {
	// GroupByLabelKey is a label key of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	GroupByLabelKey string `json:"groupByLabelKey"`
}

// WorkloadAntiAffinityTerm names the label whose value makes the group that stays apart.
type WorkloadAntiAffinityTerm struct {
	// GroupByLabelKey is a label key of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	GroupByLabelKey string `json:"groupByLabelKey"`
}
