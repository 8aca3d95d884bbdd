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
	// ConflictResolutionAnnotation decides about conflicts, above what the policy says.
	ConflictResolutionAnnotation = "work.karmada.io/conflict-resolution"

	// TemplateUIDAnnotation is the UID of the template of a member's object.
	TemplateUIDAnnotation = "resourcetemplate.karmada.io/uid"
	// TemplateGenerationAnnotation is the generation of the template that a member's object was made from.
	TemplateGenerationAnnotation = "resourcetemplate.karmada.io/generation"
	// ManagedLabelsAnnotation lists the labels of a member's object that come from its template.
	ManagedLabelsAnnotation = "resourcetemplate.karmada.io/managed-labels"
	// ManagedAnnotationsAnnotation lists the annotations of a member's object that come from its template.
	ManagedAnnotationsAnnotation = "resourcetemplate.karmada.io/managed-annotations"

	// CachedFromClusterAnnotation names the member that a cached object comes from.
	CachedFromClusterAnnotation = "resource.karmada.io/cached-from-cluster"
	// QueryFromClusterAnnotation names the member that a metric comes from.
	QueryFromClusterAnnotation = "resource.karmada.io/query-from-cluster"

	// EndpointSliceProvisionClusterAnnotation names the member that an EndpointSlice comes from.
	EndpointSliceProvisionClusterAnnotation = "endpointslice.karmada.io/provision-cluster"
	// MultiClusterServiceNameAnnotation names the MultiClusterService of an object.
	MultiClusterServiceNameAnnotation = "multiclusterservice.karmada.io/name"
	// MultiClusterServiceNamespaceAnnotation is the namespace of that MultiClusterService.
	MultiClusterServiceNamespaceAnnotation = "multiclusterservice.karmada.io/namespace"
)

// Annotations of our own.
const (
	// CopiedFromHubAnnotation marks what the hub manager has copied into a cell, with the UID of its source on the hub.
	CopiedFromHubAnnotation = "cellplane.io/copied-from-hub"
	// SourceCreatedAnnotation on such a copy is when the original was created, in RFC 3339.
	SourceCreatedAnnotation = "cellplane.io/source-created"
	// SourceGenerationAnnotation on such a copy is the generation of the original.
	SourceGenerationAnnotation = "cellplane.io/source-generation"
	// BreakGlassAnnotation on an object lets requests pass that a ProtectionPolicy would refuse. Its value is the reason,
	// which is audited; an empty reason lets nothing pass.
	BreakGlassAnnotation = "cellplane.io/break-glass"
	// FailBackAnnotation on a policy or a binding brings workloads back to the clusters they were evicted from, once these
	// have been well for as long as it says, like "10m".
	FailBackAnnotation = "cellplane.io/fail-back"
	// EvictedFromAnnotation on a binding lists the clusters that it was evicted from and wants to go back to.
	EvictedFromAnnotation = "cellplane.io/evicted-from"
	// QuotaUsedAnnotation on a FederatedResourceQuota is what each cell uses of it, as JSON.
	QuotaUsedAnnotation = "cellplane.io/quota-used"
	// SchedulingProfileAnnotation on a policy or a binding names the SchedulingProfile that its decisions follow.
	SchedulingProfileAnnotation = "cellplane.io/scheduling-profile"
	// MovedAtAnnotation on a binding is when replicas were last moved between clusters at a pace, in RFC 3339.
	MovedAtAnnotation = "cellplane.io/moved-at"
	// UnfencedCellsAnnotation on a Cluster lists failed cells, separated by commas, that may still have an identity there. While it
	// does, no engine writes to the cluster.
	UnfencedCellsAnnotation = "cellplane.io/unfenced-cells"
	// CopiedAtAnnotation on an object that has been migrated says where its copy is, as `cell/resourceVersion`: from that version on
	// the cell knows of it.
	CopiedAtAnnotation = "cellplane.io/copied-at"
	// MovedFromAnnotation on an object says where it came from, as `cell/resourceVersion`: at that version it was given up there.
	MovedFromAnnotation = "cellplane.io/moved-from"
	// JoinAnnotation with the value "false" on a Cluster of Cluster API keeps it out of the federation.
	JoinAnnotation = "cellplane.io/join"
)

// Keys of the user extras that the gateway forwards.
const (
	// EpochExtra is the epoch of the topology that a request was routed by.
	EpochExtra = "cellplane.io/epoch"
	// ExistingExtra with the value "true" keeps a request from creating anything.
	ExistingExtra = "cellplane.io/existing"
)
