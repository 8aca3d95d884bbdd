package names

// Conditions of a Cluster.
const (
	// ClusterReady reports whether the cluster accepts workloads.
	ClusterReady = "Ready"
	// ClusterCompleteAPIEnablements reports whether status.apiEnablements is complete.
	ClusterCompleteAPIEnablements = "CompleteAPIEnablements"
)

// CellGlobalsCopied is the condition of a Cell that tells whether it has the hub's global objects.
const CellGlobalsCopied = "GlobalsCopied"

// Conditions of a binding.
const (
	// BindingScheduled reports whether clusters are chosen.
	BindingScheduled = "Scheduled"
	// BindingFullyApplied reports whether the object is applied in every chosen cluster.
	BindingFullyApplied = "FullyApplied"
)

// Conditions of a MultiClusterService.
const (
	// MultiClusterServiceApplied reports whether the Service is in the clusters that offer and use it.
	MultiClusterServiceApplied = "ServiceApplied"
	// MultiClusterServiceDispatched reports whether the EndpointSlices of the clusters that offer it are sent to those that use it.
	MultiClusterServiceDispatched = "EndpointSliceDispatched"
)

// Reasons of the condition BindingScheduled.
const (
	// ReasonSuccess means that clusters are chosen.
	ReasonSuccess = "Success"
	// ReasonSchedulerError means that scheduling failed and is retried.
	ReasonSchedulerError = "SchedulerError"
	// ReasonNoClusterFit means that no cluster is eligible. The previous clusters are removed.
	ReasonNoClusterFit = "NoClusterFit"
	// ReasonUnschedulable means that the eligible clusters lack capacity. The previous clusters stay.
	ReasonUnschedulable = "Unschedulable"
	// ReasonQuotaExceeded means that a FederatedResourceQuota would be exceeded.
	ReasonQuotaExceeded = "QuotaExceeded"
)

// Reasons and producers of graceful eviction tasks.
const (
	// EvictionReasonTaintUntolerated means that the workload does not tolerate a taint of the cluster.
	EvictionReasonTaintUntolerated = "TaintUntolerated"
	// EvictionReasonApplicationFailure means that the workload was unhealthy for too long.
	EvictionReasonApplicationFailure = "ApplicationFailure"

	// EvictionProducerTaintManager evicts for taints.
	EvictionProducerTaintManager = "TaintManager"
	// EvictionProducerResourceBindingFailover evicts unhealthy namespaced workloads.
	EvictionProducerResourceBindingFailover = "ResourceBindingApplicationFailover"
	// EvictionProducerClusterResourceBindingFailover evicts unhealthy cluster-scoped workloads.
	EvictionProducerClusterResourceBindingFailover = "ClusterResourceBindingApplicationFailover"
)

// Conditions of a Work.
const (
	// WorkApplied reports whether the manifests are applied.
	WorkApplied = "Applied"
	// WorkProgressing reports whether the manifests are being applied.
	WorkProgressing = "Progressing"
	// WorkAvailable reports whether the objects exist.
	WorkAvailable = "Available"
	// WorkDegraded reports whether the objects have differed from the manifests for some time.
	WorkDegraded = "Degraded"
	// WorkDispatching reports whether changes are sent to the cluster.
	WorkDispatching = "Dispatching"
)

// EntryOpen is the condition of a Work, a binding or a template of which copies are in the hands of their members. It is absent otherwise.
const EntryOpen = "EntryOpen"

// Reasons of the condition EntryOpen, and of WorkApplied for such a copy.
const (
	// ReasonEntryOpen means that the engine writes nothing to the copy.
	ReasonEntryOpen = "EntryOpen"
	// ReasonEntryOverdue means the same, and that the time is over.
	ReasonEntryOverdue = "EntryOverdue"
)

// Differs is the condition of a Work or a binding of which the engine only reports how copies differ from what the federation wants. It is absent otherwise.
const Differs = "Differs"

// Reasons of the condition Differs.
const (
	// ReasonWouldChange means that the federation would change a copy.
	ReasonWouldChange = "WouldChange"
	// ReasonWouldNotChange means that it would change none.
	ReasonWouldNotChange = "WouldNotChange"
	// ReasonNotCompared means that this is not known.
	ReasonNotCompared = "NotCompared"
)

// Conditions of a Cell.
const (
	// CellReady reports whether the cell is healthy. Unknown means that it could not be determined.
	CellReady = "Ready"
	// CellFenced reports whether a failed cell is prevented from acting on members.
	CellFenced = "Fenced"
	// CellPromoted reports whether the backups of a failed cell are activated.
	CellPromoted = "Promoted"
	// CellFailoverBlocked: the hub manager has not reached the cell for long enough, and does not fail it over.
	CellFailoverBlocked = "FailoverBlocked"
	// CellBackedUp reports whether the backup is up to date.
	CellBackedUp = "BackedUp"
	// CellStoreSpace reports whether the etcd of the cell has space left.
	CellStoreSpace = "StoreSpace"
	// ReasonNoBackupCell is the reason of CellBackedUp while there is no other cell.
	ReasonNoBackupCell = "NoBackupCell"
)

// Conditions of a CellTopology.
const (
	// TopologySettled reports whether no change is in progress and no old copies are left.
	TopologySettled = "Settled"
)
