package bootstrap

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/api/names"
	cellengine "github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/autoscaled"
	"github.com/cellplane/cellplane/internal/engine/autoscaler"
	"github.com/cellplane/cellplane/internal/engine/cronscaler"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
)

// The users of the parts. An engine is EngineUser in its own control plane and names.EngineUser in others.
const (
	HubManagerUser     = "system:cellplane:hub-manager"
	GatewayUser        = names.GatewayUser
	ClusterGatewayUser = "system:cellplane:cluster-gateway"
	EngineUser         = "system:cellplane:engine"
)

// GrantParts grants the parts their rights on the hub. The hub manager handles objects of all kinds and is an administrator; the gateway reads, and
// counts objects in the status of quotas.
func GrantParts(ctx context.Context, hub client.Client) error {
	if err := Bind(ctx, hub, HubManagerUser, "cluster-admin"); err != nil {
		return fmt.Errorf("granting rights to the hub manager: %w", err)
	}
	if err := grantGateway(ctx, hub); err != nil {
		return fmt.Errorf("granting rights to the gateway: %w", err)
	}
	if err := grantClusterGateway(ctx, hub); err != nil {
		return fmt.Errorf("granting rights to the cluster-gateway: %w", err)
	}
	return nil
}

// GrantEngine makes the engine an administrator of its own control plane: it handles objects of all kinds.
func GrantEngine(ctx context.Context, own client.Client, name string) error {
	if err := Bind(ctx, own, EngineUser, "cluster-admin"); err != nil {
		return fmt.Errorf("granting rights in %s: %w", name, err)
	}
	return nil
}

// GrantElsewhere lets the engine of a control plane write bindings of dependencies, mark the targets of autoscalers, and scale, outside of it. Each engine has its
// own user there, so that it can be revoked separately.
func GrantElsewhere(ctx context.Context, hub client.Client, name string) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: EngineUser + ":elsewhere"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = slices.Concat(dependencies.Rules(), autoscaled.Rules(), autoscaler.Rules(), cronscaler.Rules(), cellengine.HubRules())
		return nil
	}); err != nil {
		return fmt.Errorf("granting rights to the engine of %s: %w", name, err)
	}
	if err := Bind(ctx, hub, names.EngineUser(name), role.Name); err != nil {
		return fmt.Errorf("granting rights to the engine of %s: %w", name, err)
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
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: GatewayUser}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error { role.Rules = gatewayRules; return nil }); err != nil {
		return err
	}
	if err := Bind(ctx, hub, GatewayUser, role.Name); err != nil {
		return err
	}
	return grantReports(ctx, hub)
}

// grantReports lets gateways report which cells they reach, each in a Lease of its own.
func grantReports(ctx context.Context, hub client.Client) error {
	meta := metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: GatewayUser}
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
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: GatewayUser}}
		return nil
	})
	return err
}

// grantClusterGateway lets the cluster-gateway read the members, its credentials for them, the templates that it serves beside their
// objects, ResourceRegistries, the autoscalers whose metrics agents report, and the definition that tells the level of all. Of the Secrets beside the control plane's own it may read one.
func grantClusterGateway(ctx context.Context, hub client.Client) error {
	read := []string{"get", "list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ClusterGatewayUser}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: read},
			{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: read},
			{APIGroups: []string{"search.karmada.io"}, Resources: []string{"resourceregistries"}, Verbs: read},
			{APIGroups: []string{"search.karmada.io"}, Resources: []string{"resourceregistries/status"}, Verbs: []string{"update"}},
			{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: read},
			{APIGroups: []string{"autoscaling.karmada.io"}, Resources: []string{"federatedhpas"}, Verbs: read},
			{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, ResourceNames: []string{crds.Marker}, Verbs: []string{"get"}},
		}
		return nil
	}); err != nil {
		return err
	}
	if err := Bind(ctx, hub, ClusterGatewayUser, role.Name); err != nil {
		return err
	}
	if err := grantSecrets(ctx, hub, names.ClusterNamespace, rbacv1.PolicyRule{Verbs: read}); err != nil {
		return err
	}
	return grantSecrets(ctx, hub, names.SystemNamespace, rbacv1.PolicyRule{ResourceNames: []string{searchSecret}, Verbs: []string{"get"}})
}

// searchSecret is the Secret with the credentials for OpenSearch that the cluster-gateway may read. An administrator may grant others.
const searchSecret = "opensearch"

// grantSecrets grants the cluster-gateway a right on Secrets of a namespace.
func grantSecrets(ctx context.Context, hub client.Client, namespace string, right rbacv1.PolicyRule) error {
	right.APIGroups, right.Resources = []string{""}, []string{"secrets"}
	key := metav1.ObjectMeta{Namespace: namespace, Name: ClusterGatewayUser}
	role := &rbacv1.Role{ObjectMeta: key}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = []rbacv1.PolicyRule{right}
		return nil
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: key}
	_, err := controllerutil.CreateOrUpdate(ctx, hub, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: key.Name}
		binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ClusterGatewayUser}}
		return nil
	})
	return err
}

// Bind binds a user to a cluster role. The binding has the name of the user.
func Bind(ctx context.Context, api client.Client, user, role string) error {
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
