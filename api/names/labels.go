package names

// Labels shared with Karmada.
const (
	// ManagedLabel marks an object in a member as managed by the federation, with the value "true".
	ManagedLabel = "karmada.io/managed"
	// SystemLabel marks objects of the control plane itself.
	SystemLabel = "karmada.io/system"

	// PropagationPolicyPermanentIDLabel is the identity of a PropagationPolicy, on it and on what it claims.
	PropagationPolicyPermanentIDLabel = "propagationpolicy.karmada.io/permanent-id"
	// ClusterPropagationPolicyPermanentIDLabel is the identity of a ClusterPropagationPolicy, on it and on what it claims.
	ClusterPropagationPolicyPermanentIDLabel = "clusterpropagationpolicy.karmada.io/permanent-id"
	// ResourceBindingPermanentIDLabel is the identity of a ResourceBinding, on it and on its Works.
	ResourceBindingPermanentIDLabel = "resourcebinding.karmada.io/permanent-id"
	// ClusterResourceBindingPermanentIDLabel is the identity of a ClusterResourceBinding, on it and on its Works.
	ClusterResourceBindingPermanentIDLabel = "clusterresourcebinding.karmada.io/permanent-id"
	// WorkPermanentIDLabel is the identity of a Work, on it and on its objects in the member.
	WorkPermanentIDLabel = "work.karmada.io/permanent-id"

	// DependedByLabelPrefix is the prefix of the labels of an attached binding, one for each binding that depends
	// on it.
	DependedByLabelPrefix = "resourcebinding.karmada.io/depended-by-"

	// DeletionProtectedLabel prevents the deletion of a template while its value is DeletionProtectedAlways.
	DeletionProtectedLabel = "resourcetemplate.karmada.io/deletion-protected"
	// RetainReplicasLabel leaves the replicas of a template's copies to the members, with the value "true".
	RetainReplicasLabel = "resourcetemplate.karmada.io/retain-replicas"
	// ClaimedByLabel names the kind that propagates a template instead of a policy.
	ClaimedByLabel = "resourcetemplate.karmada.io/claimed-by"

	// BindingManagedByLabel names the kind that a binding belongs to instead of a policy. Schedulers of Karmada pass bindings over that have neither.
	BindingManagedByLabel = "binding.karmada.io/managed-by"

	// MultiClusterServicePermanentIDLabel is the identity of a MultiClusterService, on it and on the Service that it claims.
	MultiClusterServicePermanentIDLabel = "multiclusterservice.karmada.io/permanent-id"
	// MultiClusterServiceNameLabel names the MultiClusterService of a Work.
	MultiClusterServiceNameLabel = "multiclusterservice.karmada.io/name"
	// MultiClusterServiceNamespaceLabel is the namespace of that MultiClusterService.
	MultiClusterServiceNamespaceLabel = "multiclusterservice.karmada.io/namespace"
	// EndpointSliceNameLabel names the exported Service of a Work.
	EndpointSliceNameLabel = "endpointslice.karmada.io/name"
	// EndpointSliceNamespaceLabel is the namespace of that Service.
	EndpointSliceNamespaceLabel = "endpointslice.karmada.io/namespace"

	// EndpointSliceManagedByLabel names the kind for which a Work brings the EndpointSlice of another cluster.
	EndpointSliceManagedByLabel = "endpointslice.karmada.io/managed-by"

	// SkipAutoPropagationLabel with the value "true" prevents the creation of a namespace in every member.
	SkipAutoPropagationLabel = "namespace.karmada.io/skip-auto-propagation"

	// FederatedResourceQuotaNameLabel names the quota of a Work.
	FederatedResourceQuotaNameLabel = "federatedresourcequota.karmada.io/name"
	// FederatedResourceQuotaNamespaceLabel is the namespace of that quota.
	FederatedResourceQuotaNamespaceLabel = "federatedresourcequota.karmada.io/namespace"
)

// Values of labels shared with Karmada.
const (
	// ManagedValue is the value of ManagedLabel.
	ManagedValue = "true"
	// ClaimedByMultiClusterService is the value of ClaimedByLabel on a Service that a MultiClusterService propagates, of BindingManagedByLabel on its
	// binding, and of EndpointSliceManagedByLabel.
	ClaimedByMultiClusterService = "MultiClusterService"
	// ManagedByServiceExport is the other value of EndpointSliceManagedByLabel.
	ManagedByServiceExport = "ServiceExport"
	// DispatchedEndpointSlice is the value of endpointslice.kubernetes.io/managed-by on EndpointSlices from other clusters.
	DispatchedEndpointSlice = "endpointslice-dispatch-controller.karmada.io"
	// DeletionProtectedAlways is the value of DeletionProtectedLabel that protects.
	DeletionProtectedAlways = "Always"
)

// Labels of Cellplane.
const (
	// SlotLabel is the slot of the template that an object is derived from.
	SlotLabel = "cellplane.io/slot"
	// RevisionOfLabel on a ReplicaSet or ControllerRevision of the federation is the UID of the workload that it is a revision of. It has no pods and is not
	// propagated.
	RevisionOfLabel = "cellplane.io/revision-of"
	// AutoscaledLabel on a template means, with the value "true", that RetainReplicasLabel is the engine's, for the autoscaler in AutoscaledByAnnotation. Undoing an
	// update replaces the annotations of a Deployment, but not its labels.
	AutoscaledLabel = "cellplane.io/autoscaled"
	// ProbeLabel marks the request, and the policy in a cell that refuses it, with which a gateway finds out whether policies are in force.
	ProbeLabel = "cellplane.io/probe"
	// RebalanceStatusLabel is the state of an object that moves between cells.
	RebalanceStatusLabel = "cellplane.io/rebalance-status"
	// CellLabel names the cell whose engine manages an object in a member.
	CellLabel = "cellplane.io/cell"
	// ClusterLabel names the member that an object is for or from.
	ClusterLabel = "cellplane.io/cluster"
	// AutoscalerLabel with the value "true" marks the WorkloadMetrics of workloads that have an autoscaler in the federation.
	AutoscalerLabel = "cellplane.io/autoscaler"
	// GatewayLeaseLabel marks the Leases on the hub with which gateways report which cells they reach.
	GatewayLeaseLabel = "cellplane.io/gateway"
	// DependedFromLabelPrefix is followed by the name of a cell whose templates depend on the binding of another
	// cell.
	DependedFromLabelPrefix = "depended-from.cellplane.io/"
	// TopologyLabel with the value "true" on a Cluster of Cluster API whose control plane is a cell lets it join the topology.
	TopologyLabel = "cellplane.io/topology"
	// ClusterAPIManagementLabel on a Cluster is the UID of the management cluster of Cluster API that it was found in.
	ClusterAPIManagementLabel = "cellplane.io/cluster-api-management"
	// ClusterAPINamespaceLabel on a Cluster is the namespace of Cluster API's object of the same name.
	ClusterAPINamespaceLabel = "cellplane.io/cluster-api-namespace"
	// ClusterAPIUIDLabel on a Cluster is the UID of that object.
	ClusterAPIUIDLabel = "cellplane.io/cluster-api-uid"
)

// Values of RebalanceStatusLabel.
const (
	// RebalanceMigrating means that the object is frozen while it is copied.
	RebalanceMigrating = "migrating"
	// RebalanceMigrated means that the object belongs to its new cell. The old copy is removed later.
	RebalanceMigrated = "migrated"
)
