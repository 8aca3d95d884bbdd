// Package override applies ClusterOverridePolicies and OverridePolicies to a manifest on its way to one cluster.
//
// Policies are compiled one by one ([Compile], [CompileCluster]) and gathered in an immutable [Set] that finds the
// policies of an object by index, so that an object nobody overrides costs a few map lookups. A policy that does not
// compile is not dropped: it fails the objects it selects, and only those, because sending a manifest without an
// override it was meant to have can be worse than not sending it.
package override
