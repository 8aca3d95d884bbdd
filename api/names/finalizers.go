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
)

// Taints set from the conditions of a cluster.
const (
	// NotReadyTaint is on a cluster that reports that it is not ready.
	NotReadyTaint = "cluster.karmada.io/not-ready"
	// UnreachableTaint is on a cluster that does not respond.
	UnreachableTaint = "cluster.karmada.io/unreachable"
	// UnschedulableTaint is on a cluster that an administrator cordoned.
	UnschedulableTaint = "cluster.karmada.io/unschedulable"
)
