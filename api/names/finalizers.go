package names

// Finalizers shared with Karmada.
const (
	BindingFinalizer                  = "karmada.io/binding-controller"
	ClusterResourceBindingFinalizer   = "karmada.io/cluster-resource-binding-controller"
	BindingDependenciesFinalizer      = "karmada.io/binding-dependencies-distributor"
	ExecutionFinalizer                = "karmada.io/execution-controller"
	ClusterFinalizer                  = "karmada.io/cluster-controller"
	PropagationPolicyFinalizer        = "karmada.io/propagation-policy-controller"
	ClusterPropagationPolicyFinalizer = "karmada.io/cluster-propagation-policy-controller"
	EndpointSliceFinalizer            = "karmada.io/endpointslice-controller"
	MultiClusterServiceFinalizer      = "karmada.io/multiclusterservice-controller"
	EndpointSliceCollectFinalizer     = "karmada.io/mcs-endpointslice-collect-controller"
	EndpointSliceDispatchFinalizer    = "karmada.io/mcs-endpointslice-dispatch-controller"
)

// Taints that follow from the condition of a cluster.
const (
	// NotReadyTaint is on a cluster that says it is not ready.
	NotReadyTaint = "cluster.karmada.io/not-ready"
	// UnreachableTaint is on a cluster that has not been heard of.
	UnreachableTaint = "cluster.karmada.io/unreachable"
	// UnschedulableTaint is on a cluster that an administrator closed.
	UnschedulableTaint = "cluster.karmada.io/unschedulable"
)
