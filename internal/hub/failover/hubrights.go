package failover

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// hubRights are the rights of engines of cells on the hub. Gateways authorize by the RBAC objects of the hub, too.
//
// A certificate cannot be revoked, so a failed cell's engine is removed from the bindings of roles that name its user. An annotation on such a binding
// remembers the user until the cell returns.
type hubRights struct{ client kubernetes.Interface }

func newHubRights(hub *rest.Config) (hubRights, error) {
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return hubRights{}, fmt.Errorf("preparing a client for the hub: %w", err)
	}
	return hubRights{client}, nil
}

// revoke removes the engine of a failed cell from all bindings of roles. It can be repeated.
func (h hubRights) revoke(ctx context.Context, cell string) error {
	return h.change(ctx, names.EngineUser(cell), func(user string, subjects []rbacv1.Subject, revoked []string) ([]rbacv1.Subject, []string) {
		kept := slices.DeleteFunc(slices.Clone(subjects), func(s rbacv1.Subject) bool { return isUser(s, user) })
		if len(kept) < len(subjects) && !slices.Contains(revoked, user) {
			revoked = append(revoked, user)
		}
		return kept, revoked
	})
}

// restore gives the engine of a cell back what revoke removed. It can be repeated.
func (h hubRights) restore(ctx context.Context, cell string) error {
	return h.change(ctx, names.EngineUser(cell), func(user string, subjects []rbacv1.Subject, revoked []string) ([]rbacv1.Subject, []string) {
		if !slices.Contains(revoked, user) {
			return subjects, revoked
		}
		revoked = slices.DeleteFunc(revoked, func(name string) bool { return name == user })
		if !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return isUser(s, user) }) {
			subjects = append(slices.Clone(subjects), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		return subjects, revoked
	})
}

func isUser(subject rbacv1.Subject, user string) bool {
	return subject.Kind == rbacv1.UserKind && subject.Name == user
}

// change applies an edit to the subjects of all bindings of roles on the hub, and to the users that their annotation remembers.
func (h hubRights) change(ctx context.Context, user string, edit func(user string, subjects []rbacv1.Subject, revoked []string) ([]rbacv1.Subject, []string)) error {
	cluster, err := h.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the bindings of roles on the hub: %w", err)
	}
	for i := range cluster.Items {
		b := &cluster.Items[i]
		patch, err := patchOf(&b.ObjectMeta, b.Subjects, user, edit)
		if err == nil && patch != nil {
			_, err = h.client.RbacV1().ClusterRoleBindings().Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("changing ClusterRoleBinding %s on the hub: %w", b.Name, err)
		}
	}
	namespaced, err := h.client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the bindings of roles on the hub: %w", err)
	}
	for i := range namespaced.Items {
		b := &namespaced.Items[i]
		patch, err := patchOf(&b.ObjectMeta, b.Subjects, user, edit)
		if err == nil && patch != nil {
			_, err = h.client.RbacV1().RoleBindings(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("changing RoleBinding %s/%s on the hub: %w", b.Namespace, b.Name, err)
		}
	}
	return nil
}

// patchOf returns the patch for one binding, nil if it needs none. It names the version that it was made for.
func patchOf(object *metav1.ObjectMeta, subjects []rbacv1.Subject, user string, edit func(string, []rbacv1.Subject, []string) ([]rbacv1.Subject, []string)) ([]byte, error) {
	before := splitNames(object.Annotations[names.RevokedUsersAnnotation])
	wanted, revoked := edit(user, subjects, slices.Clone(before))
	if slices.Equal(wanted, subjects) && slices.Equal(revoked, before) {
		return nil, nil
	}
	var annotation any // null removes it
	if len(revoked) > 0 {
		annotation = strings.Join(revoked, ",")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion, "annotations": map[string]any{names.RevokedUsersAnnotation: annotation}},
		"subjects": wanted,
	})
}

// awaitsReturn reports whether a cell has failed and has not been emptied since. Its engine would act on what the cell held before.
func awaitsReturn(cell *cellplanev1alpha1.Cell) bool {
	return meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced) != nil && !isReadmitted(cell)
}

// reconcile revokes the rights of failed cells and of those that were removed, and restores those of cells in the topology. A cell that is not in it
// and has not failed keeps its rights while its Cell exists: it may be about to join.
func (h hubRights) reconcile(ctx context.Context, topology *cellplanev1alpha1.CellTopologySpec, cells []cellplanev1alpha1.Cell) error {
	listed := map[string]bool{}
	for _, member := range topology.Cells {
		listed[member.Name] = true
		i := slices.IndexFunc(cells, func(c cellplanev1alpha1.Cell) bool { return c.Name == member.Name })
		change := h.restore
		switch {
		case member.State == cellplanev1alpha1.CellStateFailed:
			change = h.revoke
		case i < 0 || awaitsReturn(&cells[i]):
			continue
		}
		if err := change(ctx, member.Name); err != nil {
			return err
		}
	}
	known := maps.Clone(listed)
	for i := range cells {
		known[cells[i].Name] = true
		if listed[cells[i].Name] || awaitsReturn(&cells[i]) {
			continue
		}
		if err := h.restore(ctx, cells[i].Name); err != nil {
			return err
		}
	}
	named, err := h.named(ctx)
	if err != nil {
		return err
	}
	for _, cell := range named {
		if known[cell] {
			continue
		}
		if err := h.revoke(ctx, cell); err != nil {
			return err
		}
	}
	return nil
}

// named returns the cells whose engines have rights.
func (h hubRights) named(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	collect := func(subjects []rbacv1.Subject) {
		for _, subject := range subjects {
			if cell, engine := strings.CutPrefix(subject.Name, names.EngineUser("")); engine && cell != "" && subject.Kind == rbacv1.UserKind {
				found[cell] = true
			}
		}
	}
	cluster, err := h.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of roles on the hub: %w", err)
	}
	for i := range cluster.Items {
		collect(cluster.Items[i].Subjects)
	}
	namespaced, err := h.client.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of roles on the hub: %w", err)
	}
	for i := range namespaced.Items {
		collect(namespaced.Items[i].Subjects)
	}
	return slices.Sorted(maps.Keys(found)), nil
}
