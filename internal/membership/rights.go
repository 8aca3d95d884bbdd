package membership

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// about are the paths of version, health and discovery.
var about = []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/healthz", "/livez", "/readyz"}

var readVerbs = []string{"get", "list", "watch"}

// rights returns what identities of a role may do in a member, in all namespaces.
func rights(cluster string, r role) []rbacv1.PolicyRule {
	switch r {
	case statusRole:
		return []rbacv1.PolicyRule{
			// What ResourceRegistries select beyond these, such as ConfigMaps, Secrets and custom resources, the member has to grant.
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods", "events", "persistentvolumes", "persistentvolumeclaims", "resourcequotas", "services", "endpoints"}, Verbs: readVerbs},
			{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: readVerbs},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets", "deployments", "statefulsets", "daemonsets"}, Verbs: readVerbs},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs", "cronjobs"}, Verbs: readVerbs},
			{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: readVerbs},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "networkpolicies"}, Verbs: readVerbs},
			{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: readVerbs},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: readVerbs},
			{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{identifyingNamespace}, Verbs: []string{"get"}},
			{NonResourceURLs: about, Verbs: []string{"get"}},
		}
	case impersonatorRole:
		return []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"users", "groups", "serviceaccounts"}, Verbs: []string{"impersonate"}},
		}
	case engineRole:
		return []rbacv1.PolicyRule{
			// Templates may be of any kind, also of future kinds. The verbs are those for managing objects; impersonate,
			// approve and sign are not among them.
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}},
			// Roles are templates too, and may grant rights that the engine does not have.
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "clusterroles"}, Verbs: []string{"bind", "escalate"}},
			{NonResourceURLs: about, Verbs: []string{"get"}},
		}
	case registrarRole:
		all := make([]string, 0, len(allRoles))
		for _, other := range allRoles {
			all = append(all, roleName(cluster, other))
		}
		return []rbacv1.PolicyRule{
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{roleName(cluster, engineRole)}, Verbs: []string{"bind"}},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings"}, ResourceNames: []string{roleName(cluster, engineRole)}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"}, ResourceNames: all, Verbs: []string{"delete"}},
			{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		}
	}
	return nil
}

// registrarNamespacedRights returns what the registrar may do in the namespace of the identities. It may read their tokens, and
// is therefore as powerful as the strongest of them.
func registrarNamespacedRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
	}
}
