package failover

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/cellplane/cellplane/internal/membership"
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
	return h.change(ctx, func(h *holders) { h.revoke(names.EngineUser(cell)) })
}

// restore gives the engine of a cell back what revoke removed. It can be repeated.
func (h hubRights) restore(ctx context.Context, cell string) error {
	return h.change(ctx, func(h *holders) { h.restore(names.EngineUser(cell)) })
}

// holders are the users that a binding of a role names, and those that were removed from it.
type holders struct {
	subjects []rbacv1.Subject
	revoked  []string
}

func (h *holders) revoke(user string) {
	kept := slices.DeleteFunc(slices.Clone(h.subjects), func(s rbacv1.Subject) bool { return isUser(s, user) })
	if len(kept) < len(h.subjects) && !slices.Contains(h.revoked, user) {
		h.revoked = append(h.revoked, user)
	}
	h.subjects = kept
}

func (h *holders) restore(user string) {
	if !slices.Contains(h.revoked, user) {
		return
	}
	h.revoked = slices.DeleteFunc(h.revoked, func(name string) bool { return name == user })
	if !slices.ContainsFunc(h.subjects, func(s rbacv1.Subject) bool { return isUser(s, user) }) {
		h.subjects = append(slices.Clone(h.subjects), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
}

// cells returns the cells whose engines it names.
func (h *holders) cells() []string {
	var cells []string
	for _, subject := range h.subjects {
		if cell, engine := strings.CutPrefix(subject.Name, names.EngineUser("")); engine && cell != "" && subject.Kind == rbacv1.UserKind {
			cells = append(cells, cell)
		}
	}
	return cells
}

func isUser(subject rbacv1.Subject, user string) bool {
	return subject.Kind == rbacv1.UserKind && subject.Name == user
}

// change edits all bindings of roles on the hub.
func (h hubRights) change(ctx context.Context, edit func(*holders)) error {
	cluster, err := h.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the bindings of roles on the hub: %w", err)
	}
	for i := range cluster.Items {
		b := &cluster.Items[i]
		patch, err := patchOf(&b.ObjectMeta, b.Subjects, edit)
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
		patch, err := patchOf(&b.ObjectMeta, b.Subjects, edit)
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
func patchOf(object *metav1.ObjectMeta, subjects []rbacv1.Subject, edit func(*holders)) ([]byte, error) {
	before := splitNames(object.Annotations[names.RevokedUsersAnnotation])
	after := holders{subjects: subjects, revoked: slices.Clone(before)}
	edit(&after)
	if slices.Equal(after.subjects, subjects) && slices.Equal(after.revoked, before) {
		return nil, nil
	}
	var annotation any // null removes it
	if len(after.revoked) > 0 {
		annotation = strings.Join(after.revoked, ",")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.ResourceVersion, "annotations": map[string]any{names.RevokedUsersAnnotation: annotation}},
		"subjects": after.subjects,
	})
}

// awaitsReturn reports whether a cell has failed and has not been emptied since. Its engine would act on what the cell held before.
func awaitsReturn(cell *cellplanev1alpha1.Cell) bool {
	return meta.FindStatusCondition(cell.Status.Conditions, names.CellFenced) != nil && !isReadmitted(cell)
}

// reconcile revokes the rights of failed cells and of those that were removed, and restores those of the hub's own engine and of cells in the
// topology. A cell that is not in it keeps them as long as there is a Cell: it may be about to join.
func (h hubRights) reconcile(ctx context.Context, topology *cellplanev1alpha1.CellTopologySpec, cells []cellplanev1alpha1.Cell) error {
	wanted := map[string]bool{membership.HubEngine: true} // without an entry, what a cell has stays
	known := map[string]bool{membership.HubEngine: true}
	for i := range cells {
		known[cells[i].Name] = true
		if !awaitsReturn(&cells[i]) {
			wanted[cells[i].Name] = true
		}
	}
	for _, member := range topology.Cells {
		known[member.Name] = true
		if member.State == cellplanev1alpha1.CellStateFailed {
			wanted[member.Name] = false
		}
	}
	return h.change(ctx, func(h *holders) {
		for _, cell := range h.cells() {
			if allowed, decided := wanted[cell]; !known[cell] || decided && !allowed {
				h.revoke(names.EngineUser(cell))
			}
		}
		for _, user := range slices.Clone(h.revoked) {
			if cell, engine := strings.CutPrefix(user, names.EngineUser("")); engine && wanted[cell] {
				h.restore(user)
			}
		}
	})
}
