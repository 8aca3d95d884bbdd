package agentcertificates

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
)

// The names of the roles, and of their bindings.
const (
	registrationRole = names.ComponentPrefix + "cluster-registration"
	renewalRole      = names.ComponentPrefix + "agent-renewal"
	clusterInfoRole  = names.ComponentPrefix + "cluster-info"
)

var force = metav1.ApplyOptions{FieldManager: "cellplane-hub-manager", Force: true}

// grantEvery is how long to wait after an attempt that failed, for example because a new hub has no namespace kube-public yet.
const grantEvery = 2 * time.Second

// grantUntilDone calls Grant until it succeeds or the context ends.
func grantUntilDone(ctx context.Context, hub *rest.Config) error {
	_ = wait.PollUntilContextCancel(ctx, grantEvery, true, func(ctx context.Context) (bool, error) {
		err := Grant(ctx, hub)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "clusters cannot register yet")
		}
		return err == nil, nil
	})
	return nil
}

// Grant lets bootstrap tokens of clusters and agents request certificates, and everybody read how the gateway is recognized. Gateways limit
// these rights further.
func Grant(ctx context.Context, hub *rest.Config) error {
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return err
	}
	for role, grant := range map[string]struct {
		group string
		verbs []string
	}{
		registrationRole: {names.AgentBootstrapGroup, []string{"create", "get"}},
		renewalRole:      {names.AgentsGroup, []string{"create", "get", "list", "watch"}},
	} {
		rule := rbacapply.PolicyRule().WithAPIGroups("certificates.k8s.io").WithResources("certificatesigningrequests").WithVerbs(grant.verbs...)
		if _, err := client.RbacV1().ClusterRoles().Apply(ctx, rbacapply.ClusterRole(role).WithRules(rule), force); err != nil {
			return fmt.Errorf("creating role %s on the hub: %w", role, err)
		}
		binding := rbacapply.ClusterRoleBinding(role).WithSubjects(subjectOf(rbacv1.GroupKind, grant.group)).
			WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(role))
		if _, err := client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, force); err != nil {
			return fmt.Errorf("binding role %s on the hub: %w", role, err)
		}
	}
	rule := rbacapply.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(bootstrapapi.ConfigMapClusterInfo).WithVerbs("get")
	if _, err := client.RbacV1().Roles(metav1.NamespacePublic).Apply(ctx, rbacapply.Role(clusterInfoRole, metav1.NamespacePublic).WithRules(rule), force); err != nil {
		return fmt.Errorf("creating role %s on the hub: %w", clusterInfoRole, err)
	}
	binding := rbacapply.RoleBinding(clusterInfoRole, metav1.NamespacePublic).
		WithSubjects(subjectOf(rbacv1.UserKind, user.Anonymous), subjectOf(rbacv1.GroupKind, names.AgentBootstrapGroup)).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(clusterInfoRole))
	if _, err := client.RbacV1().RoleBindings(metav1.NamespacePublic).Apply(ctx, binding, force); err != nil {
		return fmt.Errorf("binding role %s on the hub: %w", clusterInfoRole, err)
	}
	return nil
}

func subjectOf(kind, name string) *rbacapply.SubjectApplyConfiguration {
	return rbacapply.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}
