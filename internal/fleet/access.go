package fleet

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// AuthorizedGroup is the group a gateway adds to the identities it forwards to a cell. Who may do what is decided by the hub's RBAC
// before a request leaves the gateway; the group tells the cell that this has been done. The name is reserved: gateways take it
// away from whoever claims it.
const AuthorizedGroup = "cellplane:authorized"

// GrantGateways lets a cell serve what gateways have authorized. It may be repeated.
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
