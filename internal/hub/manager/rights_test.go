package manager

import (
	"context"
	"net/http"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/testenv"
)

// refusals tells of answers that refuse a request.
type refusals struct {
	http.RoundTripper
	refused chan<- struct{}
}

func (r refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusForbidden {
		r.refused <- struct{}{}
	}
	return response, err
}

// TestWaitsForRights starts a hub manager before it has rights, as when a federation is installed.
func TestWaitsForRights(t *testing.T) {
	hub := testenv.SharedAPIServer(t)
	const user = "test:hub-manager-without-rights"
	refused := make(chan struct{}, 100)
	c := &Config{Hub: hub.RESTConfig()}
	c.Hub.Impersonate = rest.ImpersonationConfig{UserName: user}
	c.Hub.Wrap(func(inner http.RoundTripper) http.RoundTripper { return refusals{inner, refused} })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.ensureNamespaces(ctx) }()
	select {
	case <-refused:
	case err := <-done:
		t.Fatalf("without rights, it ends with %v", err)
	}
	client := hub.Client(t)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	t.Cleanup(func() {
		for _, err := range []error{
			client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(t.Context()), user, metav1.DeleteOptions{}),
			client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), user, metav1.DeleteOptions{}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("with rights: %v", err)
	}
}
