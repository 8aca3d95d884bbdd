package fleet

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// AuthorizedGroup is the group that a gateway adds to the identities it forwards to a cell. It tells the cell that the gateway has
// authorized the request by the hub's RBAC. The name is reserved: gateways remove it from identities that claim it.
const AuthorizedGroup = "cellplane:authorized"

// GrantGateways makes a cell accept everything that gateways have authorized. It is idempotent.
func GrantGateways(ctx context.Context, cell kubernetes.Interface) error {
	options := metav1.ApplyOptions{FieldManager: "cellplane", Force: true}
	role := rbacapply.ClusterRole(AuthorizedGroup).WithRules(
		rbacapply.PolicyRule().WithAPIGroups("*").WithResources("*").WithVerbs("*"),
		rbacapply.PolicyRule().WithNonResourceURLs("*").WithVerbs("*"),
	)
	if _, err := cell.RbacV1().ClusterRoles().Apply(ctx, role, options); err != nil {
		return fmt.Errorf("granting gateways access to a cell: %w", err)
	}
	binding := rbacapply.ClusterRoleBinding(AuthorizedGroup).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(AuthorizedGroup)).
		WithSubjects(rbacapply.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(AuthorizedGroup))
	if _, err := cell.RbacV1().ClusterRoleBindings().Apply(ctx, binding, options); err != nil {
		return fmt.Errorf("granting gateways access to a cell: %w", err)
	}
	return nil
}
