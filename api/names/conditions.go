package names

// Conditions of a Cluster.
const (
	// ClusterReady tells whether the cluster takes workloads.
	ClusterReady = "Ready"
	// ClusterCompleteAPIEnablements tells whether status.apiEnablements lists everything the cluster serves.
	ClusterCompleteAPIEnablements = "CompleteAPIEnablements"
	// ClusterServiceDomainNameResolutionReady tells whether cluster DNS works.
	ClusterServiceDomainNameResolutionReady = "ServiceDomainNameResolutionReady"
)

// Conditions of a binding.
const (
	// BindingScheduled tells whether clusters are chosen.
	BindingScheduled = "Scheduled"
	// BindingFullyApplied tells whether the copy is in place in every chosen cluster.
	BindingFullyApplied = "FullyApplied"
)

// Reasons of the condition BindingScheduled.
const (
	// ReasonSuccess means that clusters are chosen.
	ReasonSuccess = "Success"
	// ReasonSchedulerError means that scheduling went wrong and is tried again.
	ReasonSchedulerError = "SchedulerError"
	// ReasonNoClusterFit means that no cluster is eligible; earlier choices are taken back.
	ReasonNoClusterFit = "NoClusterFit"
	// ReasonUnschedulable means that the eligible clusters lack room; earlier choices stay.
	ReasonUnschedulable = "Unschedulable"
	// ReasonQuotaExceeded means that a FederatedResourceQuota forbids it.
	ReasonQuotaExceeded = "QuotaExceeded"
)

// Reasons and producers of graceful eviction tasks.
const (
	// EvictionReasonTaintUntolerated means that the cluster got a taint the workload does not tolerate.
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
	// WorkApplied tells whether the manifests are in place.
	WorkApplied = "Applied"
	// WorkProgressing tells whether they are being applied.
	WorkProgressing = "Progressing"
	// WorkAvailable tells whether their objects exist.
	WorkAvailable = "Available"
	// WorkDegraded tells whether the objects have differed from the manifests for some time.
	WorkDegraded = "Degraded"
	// WorkDispatching tells whether changes reach the cluster.
	WorkDispatching = "Dispatching"
)

// Conditions of a MultiClusterService.
const (
	// ServiceApplied tells whether the Service is in place in the clusters.
	ServiceApplied = "ServiceApplied"
	// EndpointSliceDispatched tells whether consumers know the backends.
	EndpointSliceDispatched = "EndpointSliceDispatched"
)

// Conditions of a ServiceExport.
const (
	// ServiceExportValid tells whether the Service can be exported.
	ServiceExportValid = "Valid"
	// ServiceExportConflict tells whether clusters disagree about the service.
	ServiceExportConflict = "Conflict"
)

// Conditions of a Cell.
const (
	// CellReady tells whether the cell answers: True is healthy, False is not, and Unknown means nobody can tell.
	CellReady = "Ready"
	// CellFenced tells whether the cell is kept from acting on members, after it was given up.
	CellFenced = "Fenced"
	// CellPromoted tells whether the copies of the cell's objects have come to life, after it was given up.
	CellPromoted = "Promoted"
	// CellBackedUp tells whether the backup follows the cell closely.
	CellBackedUp = "BackedUp"
)

// Conditions of a CellTopology.
const (
	// TopologySettled tells whether no change is under way and nothing is left to clean up.
	TopologySettled = "Settled"
	// TopologyBackedUp tells whether every slot has a backup that follows closely.
	TopologyBackedUp = "BackedUp"
)
