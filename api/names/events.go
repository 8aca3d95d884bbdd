package names

// Reasons of events, as in Karmada.
const (
	EventCreateExecutionSpaceSucceed = "CreateExecutionSpaceSucceed"
	EventCreateExecutionSpaceFailed  = "CreateExecutionSpaceFailed"
	EventRemoveExecutionSpaceSucceed = "RemoveExecutionSpaceSucceed"
	EventRemoveExecutionSpaceFailed  = "RemoveExecutionSpaceFailed"
	EventTaintClusterSucceed         = "TaintClusterSucceed"
	EventTaintClusterFailed          = "TaintClusterFailed"
	EventReflectStatusSucceed        = "ReflectStatusSucceed"
	EventInterpretHealthSucceed      = "InterpretHealthSucceed"
	EventReflectStatusFailed         = "ReflectStatusFailed"
	EventInterpretHealthFailed       = "InterpretHealthFailed"
	EventInterpretRolloutSucceed     = "InterpretRolloutSucceed"
	EventInterpretRolloutFailed      = "InterpretRolloutFailed"
	// EventSyncSucceed and EventSyncFailed are about applying the manifests of a Work in the member.
	EventSyncSucceed = "SyncSucceed"
	EventSyncFailed  = "SyncFailed"
	// EventRollBackSucceed and EventRollBackFailed say whether a workload got back its former pod template after a failed update.
	EventRollBackSucceed = "RollBackSucceed"
	EventRollBackFailed  = "RollBackFailed"
	// EventWorkDispatching says whether a Work is dispatched or suspended.
	EventWorkDispatching                         = "WorkDispatching"
	EventCleanupWorkFailed                       = "CleanupWorkFailed"
	EventDependencyPolicyConflict                = "DependencyPolicyConflict"
	EventSyncScheduleResultToDependenciesSucceed = "SyncScheduleResultToDependenciesSucceed"
	EventSyncScheduleResultToDependenciesFailed  = "SyncScheduleResultToDependenciesFailed"
	EventSyncWorkSucceed                         = "SyncWorkSucceed"
	EventSyncWorkFailed                          = "SyncWorkFailed"
	EventAggregateStatusSucceed                  = "AggregateStatusSucceed"
	EventAggregateStatusFailed                   = "AggregateStatusFailed"
	EventScheduleBindingSucceed                  = "ScheduleBindingSucceed"
	EventScheduleBindingFailed                   = "ScheduleBindingFailed"
	EventDescheduleBindingSucceed                = "DescheduleBindingSucceed"
	EventDescheduleBindingFailed                 = "DescheduleBindingFailed"
	EventEvictWorkloadFromClusterSucceed         = "EvictWorkloadFromClusterSucceed"
	EventEvictWorkloadFromClusterFailed          = "EvictWorkloadFromClusterFailed"
	EventApplyPolicySucceed                      = "ApplyPolicySucceed"
	EventApplyPolicyFailed                       = "ApplyPolicyFailed"
	EventApplyOverridePolicySucceed              = "ApplyOverridePolicySucceed"
	EventApplyOverridePolicyFailed               = "ApplyOverridePolicyFailed"
	EventGetDependenciesSucceed                  = "GetDependenciesSucceed"
	EventGetDependenciesFailed                   = "GetDependenciesFailed"
	EventGetComponentsSucceed                    = "GetComponentsSucceed"
	EventGetComponentsFailed                     = "GetComponentsFailed"
	EventGetReplicasSucceed                      = "GetReplicasSucceed"
	EventGetReplicasFailed                       = "GetReplicasFailed"
	EventPreemptPolicySucceed                    = "PreemptPolicySucceed"
	EventPreemptPolicyFailed                     = "PreemptPolicyFailed"
	// EventCollectOverallStatusSucceed and EventCollectOverallStatusFailed are about the usage of a FederatedResourceQuota.
	EventCollectOverallStatusSucceed = "CollectOverallStatusSucceed"
	EventCollectOverallStatusFailed  = "CollectOverallStatusFailed"
	// EventSyncDerivedServiceSucceed and EventSyncDerivedServiceFailed are about the Service of a ServiceImport.
	EventSyncDerivedServiceSucceed = "SyncDerivedServiceSucceed"
	EventSyncDerivedServiceFailed  = "SyncDerivedServiceFailed"
	// EventSyncServiceSucceed and EventSyncServiceFailed are about the Service of a MultiClusterService.
	EventSyncServiceSucceed           = "SyncServiceSucceed"
	EventSyncServiceFailed            = "SyncServiceFailed"
	EventDispatchEndpointSliceSucceed = "DispatchEndpointSliceSucceed"
	EventDispatchEndpointSliceFailed  = "DispatchEndpointSliceFailed"
	EventAPIIncompatible              = "APIIncompatible"
	EventClusterNotFound              = "ClusterNotFound"
)

// Reasons of events of Cellplane.
const (
	// EventEntryOpen and EventEntryOverdue are about an object that its member has taken out of the federation's hands, EventEntryClosed about its return.
	EventEntryOpen    = "EntryOpen"
	EventEntryOverdue = "EntryOverdue"
	EventEntryClosed  = "EntryClosed"
	// EventDiffers is about an object of which the engine only reports how it differs from what the federation wants, EventAgrees about the end of it.
	EventDiffers = "Differs"
	EventAgrees  = "Agrees"
)
