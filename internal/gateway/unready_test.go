package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/wallclock"
)

// testCellNotReady makes a cell refuse everybody: like an API server that has just started and has not loaded its RBAC, and like one that does not accept the
// gateway's certificate. Clients must get 503 with Retry-After, and neither 403 nor 401.
func testCellNotReady(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "cell-not-ready")
	fill(t, w.client, namespace, 12)
	// Administrators need no RBAC, so use another user.
	if _, err := w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "frank"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "frank"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := w.gateway.ConfigFor(t, "frank")
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	serves := func(want bool) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("frank is served: %t", want), func(context.Context) (bool, error) {
			response := send(t, config, http.MethodGet, path, nil, "")
			return response.StatusCode == http.StatusOK == want, fmt.Errorf("a list: %s", response.Status)
		})
	}
	serves(true)
	cell, err := kubernetes.NewForConfig(adminOf(t, w.Cells[0]))
	if err != nil {
		t.Fatal(err)
	}
	there := ""
	for i := 0; there == ""; i++ {
		if name := fmt.Sprintf("map-%03d", i); ownerOf(t, w, namespace, name) == 0 {
			there = "/" + name
		}
	}
	elsewhere := clientFor(t, config)
	type refusal struct {
		name, says string
		begin, end func() error
	}
	refusals := []refusal{{
		name: "RBAC is not loaded", says: "cell-a is not ready yet",
		begin: func() error {
			return cell.RbacV1().ClusterRoleBindings().Delete(t.Context(), fleet.AuthorizedGroup, metav1.DeleteOptions{})
		},
		end: func() error { return fleet.GrantGateways(t.Context(), cell) },
	}}
	if wallclock.Supported {
		server, err := w.Cells[0].Process(kubebin.KubeAPIServer)
		if err != nil {
			t.Fatal(err)
		}
		refusals = append(refusals, refusal{
			name: "the certificate is not valid yet", says: "cell-a does not accept the identity of the gateway",
			begin: func() error { return wallclock.Shift(server.PID(), -24*time.Hour) },
			end:   func() error { return wallclock.Shift(server.PID(), 0) },
		})
	}
	for _, refusal := range refusals {
		t.Run(refusal.name, func(t *testing.T) {
			if err := refusal.begin(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := refusal.end(); err != nil {
					t.Error(err)
				}
				serves(true)
			}()
			serves(false)
			for _, test := range []struct{ method, path, body string }{
				{http.MethodGet, path, ""},
				{http.MethodGet, path + "?watch=1&timeoutSeconds=1&resourceVersion=0", ""},
				{http.MethodGet, path + there, ""},
				{http.MethodPatch, path + there, `{"data":{"a":"b"}}`},
				{http.MethodDelete, path + there, ""},
			} {
				header := http.Header{}
				if test.body != "" {
					header.Set("Content-Type", "application/merge-patch+json")
				}
				response := send(t, config, test.method, test.path, header, test.body)
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), refusal.says) {
					t.Errorf("%s %s: %s, %v, %s", test.method, test.path, response.Status, response.Header, body)
				}
			}
			for i := range 12 {
				name := fmt.Sprintf("map-%03d", i)
				if ownerOf(t, w, namespace, name) == 0 {
					continue
				}
				if _, err := elsewhere.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
					t.Errorf("reading from another cell: %v", err)
				}
			}
		})
	}
}
