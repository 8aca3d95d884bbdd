package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/cellplane/cellplane/api/names"
)

const (
	fieldManager = "cellplane-membership"

	// identifyingNamespace exists in every cluster, and its UID is the cluster's ID.
	identifyingNamespace = metav1.NamespaceSystem

	// revokeTimeout bounds the wait until a member's authorizer applies a revocation.
	revokeTimeout = 30 * time.Second
)

// member is a cluster in which identities are created and revoked.
type member struct {
	config     *rest.Config
	client     kubernetes.Interface
	cluster    string
	federation string
	// owner is the registrar's role, which owns the rest of the registrar; known while a cluster joins.
	owner *metaapply.OwnerReferenceApplyConfiguration
}

func newMember(config *rest.Config, cluster, federation string) (*member, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for cluster %s: %w", cluster, err)
	}
	return &member{config: config, client: client, cluster: cluster, federation: federation}, nil
}

// uid returns the ID of the cluster.
func uid(ctx context.Context, client kubernetes.Interface) (string, error) {
	namespace, err := client.CoreV1().Namespaces().Get(ctx, identifyingNamespace, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(namespace.UID), nil
}

var force = metav1.ApplyOptions{FieldManager: fieldManager, Force: true}

func (m *member) labels() map[string]string {
	all := map[string]string{names.SystemLabel: "true", names.ClusterLabel: m.cluster}
	if m.federation != "" {
		all[federationLabel] = m.federation
	}
	return all
}

func (m *member) labelsOf(i identity) map[string]string {
	all := m.labels()
	if i.role == engineRole {
		all[names.CellLabel] = i.cell
	}
	return all
}

// prepare creates the namespace, the roles and their bindings. It needs an administrator of the member.
func (m *member) prepare(ctx context.Context) error {
	if err := EnsureNamespace(ctx, m.client, m.cluster); err != nil {
		return err
	}
	for _, r := range allRoles {
		if err := m.prepareRole(ctx, r); err != nil {
			return fmt.Errorf("creating role %s in cluster %s: %w", roleName(m.cluster, r), m.cluster, err)
		}
	}
	return nil
}

// EnsureNamespace creates the namespace of the federation in a member.
func EnsureNamespace(ctx context.Context, member kubernetes.Interface, cluster string) error {
	namespace := coreapply.Namespace(names.ClusterNamespace).WithLabels(map[string]string{names.SystemLabel: "true"})
	if _, err := member.CoreV1().Namespaces().Apply(ctx, namespace, force); err != nil {
		return fmt.Errorf("creating namespace %s in cluster %s: %w", names.ClusterNamespace, cluster, err)
	}
	return nil
}

func (m *member) prepareRole(ctx context.Context, r role) error {
	name := roleName(m.cluster, r)
	clusterRole := rbacapply.ClusterRole(name).WithLabels(m.labels()).WithRules(applied(rights(m.cluster, r))...)
	made, err := m.client.RbacV1().ClusterRoles().Apply(ctx, clusterRole, force)
	if err != nil {
		return err
	}
	switch r {
	case engineRole:
		return m.prepareEngineBinding(ctx)
	case registrarRole:
		m.owner = metaapply.OwnerReference().WithAPIVersion(rbacv1.SchemeGroupVersion.String()).WithKind("ClusterRole").WithName(made.Name).WithUID(made.UID)
		return m.prepareRegistrar(ctx)
	}
	binding := rbacapply.ClusterRoleBinding(name).WithLabels(m.labels()).WithRoleRef(roleRef("ClusterRole", name)).WithSubjects(m.subject(r))
	_, err = m.client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, force)
	return err
}

// prepareRegistrar binds the registrar's role, and another one in the namespace of the identities.
func (m *member) prepareRegistrar(ctx context.Context) error {
	name := roleName(m.cluster, registrarRole)
	rbac := m.client.RbacV1()
	binding := rbacapply.ClusterRoleBinding(name).WithLabels(m.labels()).WithOwnerReferences(m.owner).
		WithRoleRef(roleRef("ClusterRole", name)).WithSubjects(m.subject(registrarRole))
	if _, err := rbac.ClusterRoleBindings().Apply(ctx, binding, force); err != nil {
		return err
	}
	namespaced := rbacapply.Role(name, names.ClusterNamespace).WithLabels(m.labels()).WithOwnerReferences(m.owner).
		WithRules(applied(registrarNamespacedRights())...)
	if _, err := rbac.Roles(names.ClusterNamespace).Apply(ctx, namespaced, force); err != nil {
		return err
	}
	namespacedBinding := rbacapply.RoleBinding(name, names.ClusterNamespace).WithLabels(m.labels()).WithOwnerReferences(m.owner).
		WithRoleRef(roleRef("Role", name)).WithSubjects(m.subject(registrarRole))
	_, err := rbac.RoleBindings(names.ClusterNamespace).Apply(ctx, namespacedBinding, force)
	return err
}

// GrantStatus gives the status identity its rights in a member that its agent connects with the federation. It needs an administrator of the member.
func GrantStatus(ctx context.Context, config *rest.Config, cluster string) error {
	m, err := newMember(config, cluster, "")
	if err != nil {
		return err
	}
	if err := m.prepareRole(ctx, statusRole); err != nil {
		return fmt.Errorf("creating role %s in cluster %s: %w", roleName(cluster, statusRole), cluster, err)
	}
	return nil
}

// RevokeStatus removes what GrantStatus has given.
func RevokeStatus(ctx context.Context, config *rest.Config, cluster string) error {
	m, err := newMember(config, cluster, "")
	if err != nil {
		return err
	}
	name := roleName(cluster, statusRole)
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{m.client.RbacV1().ClusterRoleBindings().Delete, m.client.RbacV1().ClusterRoles().Delete} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting role %s in cluster %s: %w", name, cluster, err)
		}
	}
	return nil
}

func (m *member) subject(r role) *rbacapply.SubjectApplyConfiguration {
	subject := identity{cluster: m.cluster, role: r}.subject()
	return rbacapply.Subject().WithKind(subject.Kind).WithNamespace(subject.Namespace).WithName(subject.Name)
}

// prepareEngineBinding creates the binding that engines are added to one by one. It is a single object so that the registrar
// needs rights to that object only, not to bindings in general.
func (m *member) prepareEngineBinding(ctx context.Context) error {
	name := roleName(m.cluster, engineRole)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: m.labels()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	_, err := m.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// refuseForeign returns an error if the name of the cluster is used in the member by another federation.
func (m *member) refuseForeign(ctx context.Context) error {
	account := identity{cluster: m.cluster, role: statusRole}.account()
	found, err := m.client.CoreV1().ServiceAccounts(names.ClusterNamespace).Get(ctx, account, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading ServiceAccount %s/%s in cluster %s: %w", names.ClusterNamespace, account, m.cluster, err)
	case found.Labels[federationLabel] != m.federation:
		return fmt.Errorf("the cluster is already a member of another federation under the name %s; join it under another name, or unjoin it there first", m.cluster)
	}
	return nil
}

// ensure creates or repairs an identity, and returns its newest credentials.
func (m *member) ensure(ctx context.Context, i identity) (credentials, error) {
	if err := m.ensureAccount(ctx, i); err != nil {
		return credentials{}, err
	}
	tokens, err := m.tokens(ctx, i)
	if err != nil {
		return credentials{}, err
	}
	if len(tokens) == 0 {
		return m.issue(ctx, i)
	}
	return m.wait(ctx, &tokens[len(tokens)-1])
}

func (m *member) ensureAccount(ctx context.Context, i identity) error {
	account := coreapply.ServiceAccount(i.account(), names.ClusterNamespace).WithLabels(m.labelsOf(i)).WithAutomountServiceAccountToken(false)
	if i.role == registrarRole {
		account.WithOwnerReferences(m.owner)
	}
	if _, err := m.client.CoreV1().ServiceAccounts(names.ClusterNamespace).Apply(ctx, account, force); err != nil {
		return fmt.Errorf("creating ServiceAccount %s/%s in cluster %s: %w", names.ClusterNamespace, i.account(), m.cluster, err)
	}
	if i.role != engineRole {
		return nil
	}
	return m.changeEngines(ctx, func(subjects []rbacv1.Subject) []rbacv1.Subject {
		if slices.Contains(subjects, i.subject()) {
			return subjects
		}
		return append(subjects, i.subject())
	})
}

// changeEngines changes the subjects of the engine binding, and writes only changes.
func (m *member) changeEngines(ctx context.Context, change func([]rbacv1.Subject) []rbacv1.Subject) error {
	bindings := m.client.RbacV1().ClusterRoleBindings()
	name := roleName(m.cluster, engineRole)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := slices.Clone(binding.Subjects)
		binding.Subjects = change(binding.Subjects)
		if slices.Equal(before, binding.Subjects) {
			return nil
		}
		_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing ClusterRoleBinding %s in cluster %s: %w", name, m.cluster, err)
	}
	return nil
}

// revoke removes an identity. Its rights are removed first: an API server may accept a deleted token for some seconds, but not a
// removed right.
func (m *member) revoke(ctx context.Context, i identity) error {
	if i.role == engineRole {
		err := m.changeEngines(ctx, func(subjects []rbacv1.Subject) []rbacv1.Subject {
			return slices.DeleteFunc(subjects, func(s rbacv1.Subject) bool { return s == i.subject() })
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	tokens, err := m.tokens(ctx, i)
	if err != nil {
		return err
	}
	if err := m.deleteTokens(ctx, tokens); err != nil {
		return err
	}
	err = m.client.CoreV1().ServiceAccounts(names.ClusterNamespace).Delete(ctx, i.account(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ServiceAccount %s/%s in cluster %s: %w", names.ClusterNamespace, i.account(), m.cluster, err)
	}
	return nil
}

// confirmRevoked returns when the member's authorizer denies an engine everything.
func (m *member) confirmRevoked(ctx context.Context, i identity) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               i.user(),
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + names.ClusterNamespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: names.ClusterNamespace},
	}}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, revokeTimeout, true, func(ctx context.Context) (bool, error) {
		answer, err := m.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return !answer.Status.Allowed, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is still allowed to act in cluster %s: something other than this federation grants it rights", i.user(), m.cluster)
	}
	if err != nil {
		return fmt.Errorf("checking the rights of %s in cluster %s: %w", i.user(), m.cluster, err)
	}
	return nil
}

// cells returns the cells that have an identity in the member.
func (m *member) cells(ctx context.Context) ([]string, error) {
	list, err := m.client.CoreV1().ServiceAccounts(names.ClusterNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{names.ClusterLabel: m.cluster}).String() + "," + names.CellLabel,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the identities of cells in cluster %s: %w", m.cluster, err)
	}
	found := map[string]bool{}
	for _, account := range list.Items {
		found[account.Labels[names.CellLabel]] = true
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func applied(rules []rbacv1.PolicyRule) []*rbacapply.PolicyRuleApplyConfiguration {
	all := make([]*rbacapply.PolicyRuleApplyConfiguration, 0, len(rules))
	for _, rule := range rules {
		all = append(all, rbacapply.PolicyRule().
			WithVerbs(rule.Verbs...).WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).
			WithResourceNames(rule.ResourceNames...).WithNonResourceURLs(rule.NonResourceURLs...))
	}
	return all
}

func roleRef(kind, name string) *rbacapply.RoleRefApplyConfiguration {
	return rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}
