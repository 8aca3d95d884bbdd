package failover

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestRightsOnTheHub fails a cell whose engine may write bindings on the hub, and lets it return.
func TestRightsOnTheHub(t *testing.T) {
	b := newFailedCell(t)
	hub, err := kubernetes.NewForConfig(b.Hub)
	if err != nil {
		t.Fatal(err)
	}
	name, other := "engine-"+b.cell.Name, "another-"+b.cell.Name
	subject := func(cell string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: names.EngineUser(cell)}
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}
	_, err = hub.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: role, Subjects: []rbacv1.Subject{subject(other), subject(b.cell.Name), subject(membership.HubEngine)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = hub.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: role, Subjects: []rbacv1.Subject{subject(b.cell.Name)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hub.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = hub.RbacV1().RoleBindings(metav1.NamespaceDefault).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	until := func(cell string, allowed bool) {
		t.Helper()
		testenv.Eventually(t, "the rights of the engine of "+cell+" change", func(ctx context.Context) (bool, error) {
			review, err := hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: names.EngineUser(cell),
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: metav1.NamespaceDefault, Verb: "delete", Group: "work.karmada.io", Resource: "resourcebindings", Name: "any",
				},
			}}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed == allowed, err
		})
	}
	until(b.cell.Name, true)

	// The member is unreachable, which does not delay the hub.
	if err := b.Do(t.Context(), b.topology, b.cell.Name); !errors.Is(err, errUnreachable) {
		t.Fatal(err)
	}
	until(b.cell.Name, false)
	until(other, true)

	topology := func(state cellplanev1alpha1.CellState) *cellplanev1alpha1.CellTopologySpec {
		return &cellplanev1alpha1.CellTopologySpec{Cells: []cellplanev1alpha1.TopologyCell{{Name: b.cell.Name, State: state}}}
	}
	rights, err := newHubRights(b.Hub)
	if err != nil {
		t.Fatal(err)
	}
	reconcile := func(state cellplanev1alpha1.CellState) {
		t.Helper()
		if err := rights.reconcile(t.Context(), topology(state), []cellplanev1alpha1.Cell{*b.read(t)}); err != nil {
			t.Fatal(err)
		}
	}
	until(other, true)
	reconcile(cellplanev1alpha1.CellStateIn)
	until(b.cell.Name, false) // it has not been emptied
	until(other, false)       // it was removed: it has no Cell
	until(membership.HubEngine, true)
	if err := rights.reconcile(t.Context(), topology(cellplanev1alpha1.CellStateIn), []cellplanev1alpha1.Cell{*b.read(t), {ObjectMeta: metav1.ObjectMeta{Name: other}}}); err != nil {
		t.Fatal(err)
	}
	until(other, true) // it is about to join again

	// An upgrade of the installation grants them again.
	patch := []byte(`{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + names.EngineUser(b.cell.Name) + `"}]}`)
	if _, err := hub.RbacV1().RoleBindings(metav1.NamespaceDefault).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(b.cell.Name, true)
	reconcile(cellplanev1alpha1.CellStateFailed)
	until(b.cell.Name, false)

	b.set(t, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonReadmitted})
	if err := b.Readmit(t.Context(), b.topology, b.cell.Name); err != nil {
		t.Fatal(err)
	}
	until(b.cell.Name, true)
	restored, err := hub.RbacV1().RoleBindings(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(restored.Subjects) != 1 || len(restored.Annotations) != 0 {
		t.Errorf("the binding has subjects %v and annotations %v", restored.Subjects, restored.Annotations)
	}
}
