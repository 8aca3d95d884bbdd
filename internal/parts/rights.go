package parts

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
)

// grantRights grants the parts their rights. The hub manager and the engines handle objects of all kinds and are
// administrators of their control planes; the gateway reads, and counts objects in the status of quotas.
func (p *Parts) grantRights(ctx context.Context) error {
	for _, c := range p.engined() {
		if err := grantEngine(ctx, c); err != nil {
			return err
		}
	}
	hub, err := apiOf(p.federation.Hub)
	if err != nil {
		return err
	}
	if err := bind(ctx, hub, userOf(hubManager), "cluster-admin"); err != nil {
		return fmt.Errorf("granting rights to the hub manager: %w", err)
	}
	for _, c := range p.engined() {
		if err := grantElsewhere(ctx, hub, c); err != nil {
			return err
		}
	}
	if err := grantGateway(ctx, hub); err != nil {
		return fmt.Errorf("granting rights to the gateway: %w", err)
	}
	if err := grantClusterGateway(ctx, hub); err != nil {
		return fmt.Errorf("granting rights to the cluster-gateway: %w", err)
	}
	return nil
}

func grantEngine(ctx context.Context, c *controlplane.ControlPlane) error {
	api, err := apiOf(c)
	if err != nil {
		return err
	}
	if err := bind(ctx, api, userOf(engine), "cluster-admin"); err != nil {
		return fmt.Errorf("granting rights in %s: %w", c.Name(), err)
	}
	return nil
}

// gatewayRules are the rights of the gateway itself: it reads roles, flow schemas, cells and their credentials, and the
// dependents of deleted objects. It may read everything: with the front-proxy certificate it could do so as any user.
var gatewayRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, Resources: []string{"flowschemas/status", "prioritylevelconfigurations/status"}, Verbs: []string{"update", "patch"}},
	{APIGroups: []string{""}, Resources: []string{"resourcequotas/status"}, Verbs: []string{"update"}},
	{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}},
}

func grantGateway(ctx context.Context, hub client.Client) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(gateway)}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error { role.Rules = gatewayRules; return nil }); err != nil {
		return err
	}
	if err := bind(ctx, hub, userOf(gateway), role.Name); err != nil {
		return err
	}
	return grantReports(ctx, hub)
}

// grantReports lets gateways report which cells they reach, each in a Lease of its own.
func grantReports(ctx context.Context, hub client.Client) error {
	meta := metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: userOf(gateway)}
	role := &rbacv1.Role{ObjectMeta: meta}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "delete"}}}
		return nil
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta}
	_, err := controllerutil.CreateOrUpdate(ctx, hub, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userOf(gateway)}}
		return nil
	})
	return err
}

// bind binds a user to a cluster role. The binding has the name of the user.
func bind(ctx context.Context, api client.Client, user, role string) error {
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}}
	_, err := controllerutil.CreateOrUpdate(ctx, api, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		if binding.Annotations[names.RevokedUsersAnnotation] != "" {
			return nil // the engine of a failed cell; it gets its rights back when the cell returns
		}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
		return nil
	})
	return err
}

func apiOf(c *controlplane.ControlPlane) (client.Client, error) {
	config, err := c.AdminConfig()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{})
}
