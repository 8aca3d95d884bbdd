package names

// Annotations shared with Karmada.
const (
	// PropagationPolicyNameAnnotation names the PropagationPolicy that claims a template.
	PropagationPolicyNameAnnotation = "propagationpolicy.karmada.io/name"
	// PropagationPolicyNamespaceAnnotation is the namespace of that policy.
	PropagationPolicyNamespaceAnnotation = "propagationpolicy.karmada.io/namespace"
	// ClusterPropagationPolicyNameAnnotation names the ClusterPropagationPolicy that claims a template.
	ClusterPropagationPolicyNameAnnotation = "clusterpropagationpolicy.karmada.io/name"

	// AppliedPlacementAnnotation is the placement, as JSON, that the last scheduling of a binding used.
	AppliedPlacementAnnotation = "policy.karmada.io/applied-placement"
	// AppliedOverridesAnnotation lists, as JSON, the OverridePolicies that shaped a Work.
	AppliedOverridesAnnotation = "policy.karmada.io/applied-overrides"
	// AppliedClusterOverridesAnnotation lists, as JSON, the ClusterOverridePolicies that shaped a Work.
	AppliedClusterOverridesAnnotation = "policy.karmada.io/applied-cluster-overrides"

	// ResourceBindingNameAnnotation names the ResourceBinding of a Work or a member's object.
	ResourceBindingNameAnnotation = "resourcebinding.karmada.io/name"
	// ResourceBindingNamespaceAnnotation is the namespace of that binding.
	ResourceBindingNamespaceAnnotation = "resourcebinding.karmada.io/namespace"
	// ResourceBindingDependenciesAnnotation lists, as JSON, what the template of a binding refers to.
	ResourceBindingDependenciesAnnotation = "resourcebinding.karmada.io/dependencies"
	// ClusterResourceBindingNameAnnotation names the ClusterResourceBinding of a Work or a member's object.
	ClusterResourceBindingNameAnnotation = "clusterresourcebinding.karmada.io/name"

	// WorkNameAnnotation names the Work of a member's object.
	WorkNameAnnotation = "work.karmada.io/name"
	// WorkNamespaceAnnotation is the namespace of that Work.
	WorkNamespaceAnnotation = "work.karmada.io/namespace"
	// ConflictResolutionAnnotation overrides the conflict resolution of the policy.
	ConflictResolutionAnnotation = "work.karmada.io/conflict-resolution"

	// TemplateUIDAnnotation is the UID of the template of a member's object.
	TemplateUIDAnnotation = "resourcetemplate.karmada.io/uid"
	// TemplateGenerationAnnotation is the generation of the template that a member's object was rendered from.
	TemplateGenerationAnnotation = "resourcetemplate.karmada.io/generation"
	// ManagedLabelsAnnotation lists the labels of a member's object that come from its template.
	ManagedLabelsAnnotation = "resourcetemplate.karmada.io/managed-labels"
	// ManagedAnnotationsAnnotation lists the annotations of a member's object that come from its template.
	ManagedAnnotationsAnnotation = "resourcetemplate.karmada.io/managed-annotations"

	// QueryFromClusterAnnotation names the member that a metric comes from.
	QueryFromClusterAnnotation = "resource.karmada.io/query-from-cluster"
)

// Annotations of Cellplane.
const (
	// CopiedFromHubAnnotation marks a copy that the hub manager made in a cell, with the UID of its source on the
	// hub.
	CopiedFromHubAnnotation = "cellplane.io/copied-from-hub"
	// SourceCreatedAnnotation on such a copy is the creation time of the source, in RFC 3339.
	SourceCreatedAnnotation = "cellplane.io/source-created"
	// SourceGenerationAnnotation on such a copy is the generation of the source.
	SourceGenerationAnnotation = "cellplane.io/source-generation"
	// BreakGlassAnnotation on an object lets requests pass that a ProtectionPolicy would refuse. Its value is the reason,
	// which is audited; an empty reason lets nothing pass.
	BreakGlassAnnotation = "cellplane.io/break-glass"
	// FailBackAnnotation on a policy or a binding returns workloads to the clusters they were evicted from, once
	// these have been healthy for the given duration, like "10m".
	FailBackAnnotation = "cellplane.io/fail-back"
	// EvictedFromAnnotation on a binding lists the clusters that it was evicted from and may fail back to.
	EvictedFromAnnotation = "cellplane.io/evicted-from"
	// QuotaUsedAnnotation on a FederatedResourceQuota is the usage of each cell, as JSON.
	QuotaUsedAnnotation = "cellplane.io/quota-used"
	// SchedulingProfileAnnotation on a policy or a binding names its SchedulingProfile.
	SchedulingProfileAnnotation = "cellplane.io/scheduling-profile"
	// UnfencedCellsAnnotation on a Cluster lists failed cells, separated by commas, that may still have an identity
	// in it. While it is set, no engine writes to the cluster.
	UnfencedCellsAnnotation = "cellplane.io/unfenced-cells"
	// CopiedAtAnnotation on a migrated object is the position of its copy, as `cell/resourceVersion`. From that
	// version on the new cell has the object.
	CopiedAtAnnotation = "cellplane.io/copied-at"
	// MovedFromAnnotation on an object is where it came from, as `cell/resourceVersion`: the version at which the
	// old cell gave it up.
	MovedFromAnnotation = "cellplane.io/moved-from"
	// JoinAnnotation with the value "false" on a Cluster of Cluster API keeps it out of the federation.
	JoinAnnotation = "cellplane.io/join"
)

// Keys of the user extras that the gateway forwards.
const (
	// EpochExtra is the epoch of the topology that a request was routed by.
	EpochExtra = "cellplane.io/epoch"
	// ExistingExtra with the value "true" prevents a request from creating an object.
	ExistingExtra = "cellplane.io/existing"
)
