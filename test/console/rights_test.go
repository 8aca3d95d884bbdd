package console

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// account creates a ServiceAccount until the test ends, and returns its token.
func (f *federation) account(t *testing.T, name string) string {
	t.Helper()
	accounts := f.kube.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	answer, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// bind gives a ServiceAccount a ClusterRole until the test ends.
func (f *federation) bind(t *testing.T, role, account string) {
	t.Helper()
	bindings := f.kube.RbacV1().ClusterRoleBindings()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "console-test-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}) })
}

// Who may see little is told so, and is offered nothing that is refused. A right that is given meanwhile shows by itself.
func (f *federation) testFewRights(t *testing.T, browser context.Context) {
	token := f.account(t, "watcher")
	p := open(t, browser, f.address()+"#token="+token)
	p.shows("system:serviceaccount:default:watcher", "You may not see cells", "You may not see clusters", "Ask an administrator")
	p.pictures("few-rights")

	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "console-test-watcher"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"cluster.karmada.io", "cellplane.io"}, Resources: []string{"clusters", "clusterledgers", "cells", "celltopologies"}, Verbs: []string{"get", "list", "watch"}}},
	}
	if _, err := f.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.kube.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
	f.bind(t, role.Name, "watcher")
	p.shows("cell-a", "member1")
	p.click(".nav a", "Clusters")
	p.click("a.name", "member1")
	p.shows("The largest pod that fits", "No taints", "You may not see events")
	p.never("cellplane cordon")
	p.click(".nav a", "Cells")
	p.click(".choices button", "Drain a cell")
	p.choose("#plan-cell", "cell-a")
	p.shows("of all objects", "cellplane cells drain cell-a")
	if evaluate[bool](p, `!!document.querySelector(".do button.primary")`) {
		t.Error("a user who may not change the topology is offered to")
	}
}

// When the gateway stops accepting a token, what is shown stays, and another token goes on with it. Somebody else sees nothing of it.
func (f *federation) testExpiry(t *testing.T, browser context.Context) {
	token := f.account(t, "leaver")
	f.bind(t, "cluster-admin", "leaver")
	p := open(t, browser, f.address()+"#token="+token)
	p.shows("system:serviceaccount:default:leaver", "member1", "cell-a")
	p.visit("#/clusters/member1")
	p.shows("cellplane cordon member1")
	if err := f.kube.CoreV1().ServiceAccounts("default").Delete(t.Context(), "leaver", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.shows("Sign in again", "no longer accepts the token of system:serviceaccount:default:leaver")
	p.pictures("expired")
	// Escape does not lead to the page behind the dialog, however often.
	p.do(chromedp.KeyEvent("\u001b"), chromedp.KeyEvent("\u001b"))
	p.until("the dialog is open", `document.querySelector("dialog.expired")?.open`)
	p.shows("cellplane cordon member1")
	p.fill("#token", f.account(t, "joiner"))
	p.click("button", "Sign in")
	p.shows("system:serviceaccount:default:joiner")
	p.never("member1")
	p.never("leaver")
	p.shows("You may not see clusters", "You may not see cells")
	p.visit("#/clusters/member1")
	p.shows("You may not see cluster member1")
	p.never("cellplane cordon")
	p.until("the dialog is closed", `!document.querySelector("dialog.expired")`)
}
