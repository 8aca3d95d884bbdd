package names

// Labels shared with Karmada.
const (
	// ManagedLabel marks an object in a member as ours, with the value "true".
	ManagedLabel = "karmada.io/managed"
	// SystemLabel marks objects that belong to the control plane itself.
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
	// MultiClusterServicePermanentIDLabel is the identity of a MultiClusterService.
	MultiClusterServicePermanentIDLabel = "multiclusterservice.karmada.io/permanent-id"

	// BindingManagedByLabel names the controller that made a binding.
	BindingManagedByLabel = "binding.karmada.io/managed-by"
	// DependedByLabelPrefix begins the labels of an attached binding, one for each binding that needs it.
	DependedByLabelPrefix = "resourcebinding.karmada.io/depended-by-"

	// DeletionProtectedLabel keeps a template from being deleted while its value is DeletionProtectedAlways.
	DeletionProtectedLabel = "resourcetemplate.karmada.io/deletion-protected"
	// RetainReplicasLabel leaves the replicas of a template's copies to the members, with the value "true".
	RetainReplicasLabel = "resourcetemplate.karmada.io/retain-replicas"
	// ClaimedByLabel names the kind that propagates a template in place of a policy.
	ClaimedByLabel = "resourcetemplate.karmada.io/claimed-by"

	// SkipAutoPropagationLabel keeps a namespace from being made in every member, with the value "true".
	SkipAutoPropagationLabel = "namespace.karmada.io/skip-auto-propagation"

	// FederatedResourceQuotaNameLabel names the quota that a Work is made for.
	FederatedResourceQuotaNameLabel = "federatedresourcequota.karmada.io/name"
	// FederatedResourceQuotaNamespaceLabel is the namespace of that quota.
	FederatedResourceQuotaNamespaceLabel = "federatedresourcequota.karmada.io/namespace"

	// MultiClusterServiceNameLabel names the MultiClusterService that a Work is made for.
	MultiClusterServiceNameLabel = "multiclusterservice.karmada.io/name"
	// MultiClusterServiceNamespaceLabel is the namespace of that MultiClusterService.
	MultiClusterServiceNamespaceLabel = "multiclusterservice.karmada.io/namespace"

	// EndpointSliceNameLabel names the EndpointSlice that a Work carries.
	EndpointSliceNameLabel = "endpointslice.karmada.io/name"
	// EndpointSliceNamespaceLabel is the namespace of that EndpointSlice.
	EndpointSliceNamespaceLabel = "endpointslice.karmada.io/namespace"
	// EndpointSliceManagedByLabel names the controller that carries the EndpointSlice.
	EndpointSliceManagedByLabel = "endpointslice.karmada.io/managed-by"
)

// Values of labels shared with Karmada.
const (
	// ManagedValue is the value of ManagedLabel.
	ManagedValue = "true"
	// DeletionProtectedAlways is the value of DeletionProtectedLabel that protects.
	DeletionProtectedAlways = "Always"
)

// Labels of our own.
const (
	// SlotLabel carries the slot of the template that an object is derived from.
	SlotLabel = "cellplane.io/slot"
	// RebalanceStatusLabel is the state of an object that moves between cells.
	RebalanceStatusLabel = "cellplane.io/rebalance-status"
	// CellLabel names the cell whose engine keeps an object in a member.
	CellLabel = "cellplane.io/cell"
	// ClusterLabel names the member that an object is for or from.
	ClusterLabel = "cellplane.io/cluster"
	// DependedFromLabelPrefix is followed by the name of a cell: templates there need the binding, which lives elsewhere.
	DependedFromLabelPrefix = "depended-from.cellplane.io/"
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
	// RebalanceMigrated means that the object belongs to its new cell, and this copy is waiting to be removed.
	RebalanceMigrated = "migrated"
)
