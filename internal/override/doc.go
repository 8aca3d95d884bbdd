// Package override applies ClusterOverridePolicies and OverridePolicies to the manifest for one cluster.
//
// Policies are compiled one by one ([Compile], [CompileCluster]) into an immutable [Set] that finds the policies of an
// object by index, so that an object without overrides costs a few map lookups. A policy that does not compile is not
// ignored: it fails the objects it selects, and only those, because a manifest without its override can do more harm
// than none.
package override
