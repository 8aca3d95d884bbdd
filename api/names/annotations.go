package names

// Annotations shared with Karmada.
const (
	// PropagationPolicyNameAnnotation names the PropagationPolicy that claims a template.
	PropagationPolicyNameAnnotation = "propagationpolicy.karmada.io/name"
	// PropagationPolicyNamespaceAnnotation is the namespace of that policy.
	PropagationPolicyNamespaceAnnotation = "propagationpolicy.karmada.io/namespace"
	// ClusterPropagationPolicyNameAnnotation names the ClusterPropagationPolicy that claims a template.
	ClusterPropagationPolicyNameAnnotation = "clusterpropagationpolicy.karmada.io/name"

	// MultiClusterServiceNameAnnotation names the MultiClusterService that claims a Service.
	MultiClusterServiceNameAnnotation = "multiclusterservice.karmada.io/name"
	// MultiClusterServiceNamespaceAnnotation is the namespace of that MultiClusterService.
	MultiClusterServiceNamespaceAnnotation = "multiclusterservice.karmada.io/namespace"
	// ProvisionClusterAnnotation names the cluster that an EndpointSlice, or its Work, comes from.
	ProvisionClusterAnnotation = "endpointslice.karmada.io/provision-cluster"

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
	// DurabilityAnnotation on an object or a namespace says when a write is acknowledged. Its values are
	// DurabilityReplicated and DurabilityReplicatedPreferred.
	DurabilityAnnotation = "cellplane.io/durability"
	// BreakGlassAnnotation on an object lets requests pass that a ProtectionPolicy would refuse. Its value is the reason,
	// which is audited; an empty reason lets nothing pass.
	BreakGlassAnnotation = "cellplane.io/break-glass"
	// FailBackAnnotation on a policy or a binding returns workloads to the clusters they were evicted from, once
	// these have been healthy for the given duration, like "10m".
	FailBackAnnotation = "cellplane.io/fail-back"
	// AutoscaledByAnnotation on a template names the HorizontalPodAutoscaler for which the engine has set RetainReplicasLabel.
	AutoscaledByAnnotation = "cellplane.io/autoscaled-by"
	// MetricValuesAnnotation on an autoscaler says what counts of the values that clusters have of a metric of an object, or of an external metric. Its
	// values are MetricValuesSum, which is the default, and MetricValuesMax.
	MetricValuesAnnotation = "cellplane.io/metric-values"
	// TemplateDigestAnnotation on a binding with a lazy policy is a digest of what the user controls in the template. It tells
	// a change by the user from the engine's own changes, also if no engine ran at the time.
	TemplateDigestAnnotation = "cellplane.io/template-digest"
	// EvictedFromAnnotation on a binding lists the clusters that it was evicted from and may fail back to.
	EvictedFromAnnotation = "cellplane.io/evicted-from"
	// QuotaUsedAnnotation on a FederatedResourceQuota is the usage of each cell, as JSON.
	QuotaUsedAnnotation = "cellplane.io/quota-used"
	// AdmittedRequirementsAnnotation on a binding holds the requirements that its clusters still use, as JSON, while a quota refuses those in its spec.
	AdmittedRequirementsAnnotation = "cellplane.io/admitted-requirements"
	// RolloutAnnotation on a binding is the ledger of its rollout: what each cluster was told, and what it may still do by that.
	RolloutAnnotation = "cellplane.io/rollout"
	// RolloutWaitsAnnotation on a binding tells of each cluster of its rollout that waits what it waits for, as a JSON object.
	RolloutWaitsAnnotation = "cellplane.io/rollout-waits"
	// RolloutStagesAnnotation on a binding is what is remembered of the stages of its rollout.
	RolloutStagesAnnotation = "cellplane.io/rollout-stages"
	// RolloutApprovalAnnotation on a binding is what people have approved of its rollout.
	RolloutApprovalAnnotation = "cellplane.io/rollout-approval"
	// RolledBackToAnnotation on a workload names the pod template that an engine has given back to it because an update had failed.
	RolledBackToAnnotation = "cellplane.io/rolled-back-to"
	// RolloutCommandAnnotation on an object in a member is the number of the command that it was written by, and the name of its pod template, as
	// "number/name".
	RolloutCommandAnnotation = "cellplane.io/rollout-command"
	// RolloutReplacedAnnotation on an object in a member has the fields of its spec that its command has replaced, such as its own bounds. An object
	// that is released gets them back.
	RolloutReplacedAnnotation = "cellplane.io/rollout-replaced"
	// SchedulingProfileAnnotation on a policy or a binding names its SchedulingProfile.
	SchedulingProfileAnnotation = "cellplane.io/scheduling-profile"
	// UnfencedCellsAnnotation on a Cluster lists failed cells, separated by commas, that may still have an identity
	// in it. While it is set, no engine writes to the cluster.
	UnfencedCellsAnnotation = "cellplane.io/unfenced-cells"
	// RevokedUsersAnnotation on a RoleBinding or ClusterRoleBinding of the hub lists, separated by commas, the engines of failed cells that were
	// removed from its subjects. They get their rights back when their cells return.
	RevokedUsersAnnotation = "cellplane.io/revoked-users"
	// CopiedAtAnnotation on a migrated object is the position of its copy, as `cell/resourceVersion`. From that
	// version on the new cell has the object.
	CopiedAtAnnotation = "cellplane.io/copied-at"
	// MovedFromAnnotation on an object is where it came from, as `cell/resourceVersion`: the version at which the
	// old cell gave it up.
	MovedFromAnnotation = "cellplane.io/moved-from"
	// MayChangeRightsAnnotation with the value "true" on a ClusterOverridePolicy lets it change what Roles, bindings of roles and tokens grant in
	// members. Only who may grant any right can set it.
	MayChangeRightsAnnotation = "cellplane.io/may-change-rights"
	// WriterLeaseAnnotation on the Lease of a gateway is how long its writer lease lasts, like "3s".
	WriterLeaseAnnotation = "cellplane.io/writer-lease"
	// ReachedCellsAnnotation on the Lease of a gateway lists the cells that it reaches, separated by commas.
	ReachedCellsAnnotation = "cellplane.io/reached-cells"
	// UnreachedCellsAnnotation on the Lease of a gateway lists the other cells, each as "cell=time" with the time at
	// which it last answered.
	UnreachedCellsAnnotation = "cellplane.io/unreached-cells"
	// StoppedAnnotation with the value "true" on a Cell that has failed is an operator's word that nothing of it runs any
	// more.
	StoppedAnnotation = "cellplane.io/stopped"
	// EntryAnnotation on an object in a member, with any value, takes it out of the federation's hands: no engine writes to it.
	EntryAnnotation = "cellplane.io/entry"
	// EntryUntilAnnotation is until when that is meant to last, in RFC 3339. It ends by itself only if the policy says so.
	EntryUntilAnnotation = "cellplane.io/entry-until"
	// EntryReasonAnnotation says why.
	EntryReasonAnnotation = "cellplane.io/entry-reason"
	// EntryByAnnotation says who did it.
	EntryByAnnotation = "cellplane.io/entry-by"
	// EntrySeenAnnotation on an object in a member is the time, in RFC 3339, of the newest write by a person about which was decided: it opened an
	// entry, or the entry was closed after it.
	EntrySeenAnnotation = "cellplane.io/entry-seen"
	// AutoEntryAnnotation on a policy opens the entry of an object in a member when a person writes there what the federation would set back. Its value
	// is for how long, like "2h"; "0" means without end.
	AutoEntryAnnotation = "cellplane.io/auto-entry"
	// EntryExpiryAnnotation on a policy says what becomes of an entry whose time is over. Its values are EntryExpiryStay and EntryExpiryDiscard.
	EntryExpiryAnnotation = "cellplane.io/entry-expiry"
	// ReleaseAnnotation on a template lists clusters, separated by commas, whose copies stay there when their Works are deleted; "*" means
	// all. On a policy it says that the policy goes with the template.
	ReleaseAnnotation = "cellplane.io/release"
	// SuspendDispatchingAnnotation with the value "true" on a template suspends dispatching of its Works, as the suspension of a policy does for all
	// templates of the policy.
	SuspendDispatchingAnnotation = "cellplane.io/suspend-dispatching"
	// DispatchingAnnotation with the value DispatchingReportOnly on a policy or a template keeps its Works from being dispatched, and has the engine
	// report how the objects in members differ from what the federation wants. Works have it, too. Any other value does the same, so that a mistake
	// in it does not let the engine write.
	DispatchingAnnotation = "cellplane.io/dispatching"
	// HandedOverAnnotation on policies and bindings of a Karmada control plane keeps, as JSON, what the hand-over to the federation has changed in
	// them. On a template of the federation it is the UID of the template in Karmada.
	HandedOverAnnotation = "cellplane.io/handed-over"
	// JoinAnnotation with the value "false" on a Cluster of Cluster API keeps it out of the federation.
	JoinAnnotation = "cellplane.io/join"
)

// DispatchingReportOnly is the value of DispatchingAnnotation.
const DispatchingReportOnly = "ReportOnly"

// The values of EntryExpiryAnnotation.
const (
	// EntryExpiryStay leaves the entry open, and says so. It is the default.
	EntryExpiryStay = "Stay"
	// EntryExpiryDiscard closes the entry: the object becomes what the federation wants.
	EntryExpiryDiscard = "Discard"
)

// Keys of the user extras that the gateway forwards.
const (
	// EpochExtra is the epoch of the topology that a request was routed by.
	EpochExtra = "cellplane.io/epoch"
	// ExistingExtra with the value "true" prevents a request from creating an object.
	ExistingExtra = "cellplane.io/existing"
	// DurabilityExtra says that the gateway knows that the write has to be durable.
	DurabilityExtra = "cellplane.io/durability"
	// UserExtra marks the requests that a gateway forwards for a user, and not for a component. Policies of users apply to them only.
	UserExtra = "cellplane.io/user"
)

// The values of MetricValuesAnnotation.
const (
	// MetricValuesSum adds the values of clusters: each has a part.
	MetricValuesSum = "Sum"
	// MetricValuesMax takes the largest: each cluster sees the whole.
	MetricValuesMax = "Max"
)

// The values of DurabilityAnnotation.
const (
	// DurabilityReplicated acknowledges a write only when the backup cell has it.
	DurabilityReplicated = "replicated"
	// DurabilityReplicatedPreferred acknowledges it with a warning if the backup cell does not confirm it in time.
	DurabilityReplicatedPreferred = "replicated-preferred"
)

// Annotations of the CustomResourceDefinition that tells the level of all. See package crds.
const (
	// LevelAnnotation is the level of the definitions.
	LevelAnnotation = "cellplane.io/level"
	// ServesLevelAnnotation is the lowest level of parts that go with them.
	ServesLevelAnnotation = "cellplane.io/serves-level"
)
