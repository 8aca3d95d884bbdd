// Package agentrights gives the agents of clusters their rights on the hub, by which gateways authorize them. In pull mode each may read and report
// about the Works, the metrics and the Cluster of its own cluster, open tunnels to it, renew its Lease, and read what interprets objects. In push mode it may report metrics.
package agentrights

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/tunnel"
)

// Finalizer keeps the rights in the namespace of a cluster's Works while the namespace is being deleted: the agent needs them to remove what the
// Works have created.
const Finalizer = "cellplane.io/agent-rights"

// scope is where rules hold: a namespace, or everywhere if it is empty.
type scope struct {
	namespace string
	rules     []rbacv1.PolicyRule
}

// Agent returns the rights of the agent of a cluster in pull mode, as Roles and their bindings.
func Agent(cluster string) []client.Object {
	var objects []client.Object
	for _, s := range scopes(cluster) {
		objects = append(objects, s.objects(cluster)...)
	}
	return objects
}

// scopes returns what the agent of a cluster may do. The first one is granted first and taken last.
func scopes(cluster string) []scope {
	read := []string{"get", "list", "watch"}
	only := []string{cluster}
	return []scope{
		{"", []rbacv1.PolicyRule{
			{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters"}, ResourceNames: only, Verbs: read},
			{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters/status"}, ResourceNames: only, Verbs: []string{"patch"}},
			{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters/" + tunnel.Subresource}, ResourceNames: only, Verbs: []string{"create"}},
			reports(cluster),
			{APIGroups: []string{"config.karmada.io"}, Resources: []string{"resourceinterpretercustomizations", "resourceinterpreterwebhookconfigurations"}, Verbs: read},
		}},
		{names.ExecutionNamespace(cluster), []rbacv1.PolicyRule{
			{APIGroups: []string{"work.karmada.io"}, Resources: []string{"works"}, Verbs: append(read[:len(read):len(read)], "patch")}, // the finalizer is removed with a patch
			{APIGroups: []string{"work.karmada.io"}, Resources: []string{"works/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		// The hub manager creates the Lease: a right to create one cannot be limited to a name.
		{names.ClusterNamespace, []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: only, Verbs: []string{"get", "update"}},
		}},
	}
}

// reports is the right to report metrics.
func reports(cluster string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"metrics.cellplane.io"}, Resources: []string{"metricsreports"}, ResourceNames: []string{cluster}, Verbs: []string{"create"}}
}

// reporter returns the rights of the agent of a cluster in push mode. They have the names of the first ones of Agent.
func reporter(cluster string) []client.Object {
	s := scope{"", []rbacv1.PolicyRule{reports(cluster)}}
	return s.objects(cluster)
}

// objects returns a role with the rules, and its binding to the agent.
func (s *scope) objects(cluster string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: names.AgentUser(cluster), Labels: map[string]string{names.SystemLabel: "true"}}
	if s.namespace == names.ExecutionNamespace(cluster) {
		meta.Finalizers = []string{Finalizer}
	}
	to := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: names.AgentUser(cluster)}}
	if s.namespace == "" {
		return []client.Object{
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: s.rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}, Subjects: to},
		}
	}
	return []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: s.rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: to},
	}
}
