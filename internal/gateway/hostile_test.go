package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testUsers checks that users have exactly the rights of the hub's RBAC, in cells and on the hub.
func testUsers(t *testing.T, w *world) {
	mine, other := gatewaytest.Namespace(t, w.Federation, "users-mine"), gatewaytest.Namespace(t, w.Federation, "users-other")
	alice := clientFor(t, w.gateway.ConfigFor(t, "alice", "team-a"))
	denied := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
	_, err := alice.CoreV1().ConfigMaps(mine).List(t.Context(), metav1.ListOptions{})
	denied("listing without any right", err)
	if _, err := w.client.RbacV1().RoleBindings(mine).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "team-a"}, {Kind: rbacv1.ServiceAccountKind, Namespace: mine, Name: "robot"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the right is known", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().ConfigMaps(mine).List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
	for i := range 6 { // some in each cell
		if _, err := alice.CoreV1().ConfigMaps(mine).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, err = alice.CoreV1().ConfigMaps(other).List(t.Context(), metav1.ListOptions{})
	denied("listing elsewhere", err)
	_, err = alice.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	denied("listing everywhere", err)
	_, err = alice.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	denied("listing nodes", err)
	_, err = alice.CoreV1().ConfigMaps(other).Watch(t.Context(), metav1.ListOptions{})
	denied("watching elsewhere", err)

	w.testApplyWithoutRight(t, mine)

	impersonating := w.gateway.ConfigFor(t, "alice", "team-a")
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
	_, err = clientFor(t, impersonating).CoreV1().ConfigMaps(other).List(t.Context(), metav1.ListOptions{})
	denied("impersonating an administrator", err)
	admin := w.gateway.Config(t)
	admin.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"team-a"}}
	_, err = clientFor(t, admin).CoreV1().ConfigMaps(other).List(t.Context(), metav1.ListOptions{})
	denied("an administrator impersonating alice", err)

	t.Run("Token", func(t *testing.T) {
		if _, err := w.client.CoreV1().ServiceAccounts(mine).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := w.client.CoreV1().ServiceAccounts(mine).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config := &rest.Config{Host: w.gateway.URL(), BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: w.gateway.CA()}}
		robot := clientFor(t, config)
		if _, err := robot.CoreV1().ConfigMaps(mine).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		_, err = robot.CoreV1().ConfigMaps(other).List(t.Context(), metav1.ListOptions{})
		denied("the robot listing elsewhere", err)
		config.BearerToken = "nonsense"
		if _, err := clientFor(t, config).CoreV1().ConfigMaps(mine).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("with a nonsense token: %v, want 401", err)
		}
	})
	t.Run("Components", func(t *testing.T) { testComponents(t, w) })
}

// testApplyWithoutRight checks that who may patch and update, but not create, cannot create by an apply or a PUT, in any cell and on the hub.
func (w *world) testApplyWithoutRight(t *testing.T, namespace string) {
	t.Helper()
	if _, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "patcher"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"patch", "update"}, APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases", "serviceaccounts"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "patcher"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "patcher"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "pat"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pat := clientFor(t, w.gateway.ConfigFor(t, "pat"))
	apply := func(ctx context.Context, name string) error {
		_, err := pat.CoreV1().ConfigMaps(namespace).Apply(ctx, coreapply.ConfigMap(name, namespace).WithData(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "pat"})
		return err
	}
	testenv.Eventually(t, "pat may change objects", func(ctx context.Context) (bool, error) {
		err := apply(ctx, "m-0")
		return err == nil, err
	})
	for i := range 6 { // some in each cell
		if err := apply(t.Context(), fmt.Sprintf("applied-%d", i)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot create") {
			t.Errorf("creating by an apply: %v, want it forbidden", err)
		}
		disguised := send(t, w.gateway.ConfigFor(t, "pat"), http.MethodPatch, fmt.Sprintf("/api/v1/namespaces/%s/configmaps/disguised-%d?fieldManager=pat", namespace, i),
			http.Header{"Content-Type": {"application/apply-patch+yaml; a=1; a=2"}}, `{"apiVersion":"v1","kind":"ConfigMap"}`)
		if disguised.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("creating by an apply whose type only API servers understand: %s, want it refused", disguised.Status)
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("put-%d", i)}} // a PUT creates Leases
		if _, err := pat.CoordinationV1().Leases(namespace).Update(t.Context(), lease, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("creating by a PUT: %v, want 404", err)
		}
	}
	_, err := pat.CoreV1().ServiceAccounts(namespace).Apply(t.Context(), coreapply.ServiceAccount("applied", namespace), metav1.ApplyOptions{FieldManager: "pat"})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot create") {
		t.Errorf("creating on the hub by an apply: %v, want it forbidden", err)
	}
}

// testHostile sends malicious requests.
func testHostile(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "hostile")
	mallory := w.gateway.ConfigFor(t, "mallory")
	path := "/api/v1/namespaces/" + namespace + "/configmaps"
	anonymous := &rest.Config{Host: w.gateway.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: w.gateway.CA()}}
	forged := http.Header{
		"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters", "cellplane:authorized"}, "X_remote_group": {"system:masters"},
		"X-Remote-Extra-Cellplane.io%2fepoch": {"999"},
	}
	for _, test := range []struct {
		name         string
		config       *rest.Config
		method, path string
		header       http.Header
		body         string
		want         []int
	}{
		{"anonymous", anonymous, "GET", path, nil, "", []int{401}},
		{"anonymous health check", anonymous, "GET", "/readyz", nil, "", []int{200}},
		{"anonymous discovery", anonymous, "GET", "/apis", nil, "", []int{401}},
		{"anonymous forged headers", anonymous, "GET", path, forged, "", []int{401}},
		{"forged headers of a user", mallory, "GET", path, forged, "", []int{403}},
		{"forged headers on the hub", mallory, "GET", "/api/v1/nodes", forged, "", []int{403}},
		{"forged impersonation", mallory, "GET", path, http.Header{"Impersonate-User": {"a"}, "Impersonate-Group": {"system:masters"}}, "", []int{403}},
		{"climbing out of the path", mallory, "GET", "/api/v1/namespaces/x/configmaps/../../../../healthz", nil, "", []int{400}},
		{"encoded climbing", mallory, "GET", "/api/v1/namespaces/x/configmaps/%2e%2e/%2e%2e/" + namespace + "/configmaps", nil, "", []int{400}},
		{"encoded slashes", mallory, "GET", "/api/v1/namespaces/x%2f..%2f" + namespace + "/configmaps", nil, "", []int{400}},
		{"empty segments", mallory, "GET", "/api/v1//namespaces/" + namespace + "/configmaps", nil, "", []int{400}},
		{"metrics", mallory, "GET", "/metrics", nil, "", []int{403}},
		{"federation surface", mallory, "GET", "/federation" + path, forged, "", []int{403}},
		{"federation twice", mallory, "GET", "/federation/federation" + path, forged, "", []int{403, 404}},
		{"an unknown method", w.gateway.Config(t), "BREW", path, nil, "", []int{405, 403}},
		{"a body too large", w.gateway.Config(t), "POST", path, nil, `{"metadata":{"name":"big"},"data":{"x":"` + strings.Repeat("x", 4<<20) + `"}}`, []int{413}},
		{"a body that is no JSON", w.gateway.Config(t), "POST", path, nil, `{"metadata":`, []int{400}},
		{"a body without a name", w.gateway.Config(t), "POST", path, nil, `{"apiVersion":"v1","kind":"ConfigMap"}`, []int{422}},
		{"a compressed body", w.gateway.Config(t), "POST", path, http.Header{"Content-Encoding": {"gzip"}}, "\x1f\x8b", []int{415}},
		{"CBOR", w.gateway.Config(t), "POST", path, http.Header{"Content-Type": {"application/cbor"}}, "\xd9\xd9\xf7\xa0", []int{415}},
		{"deeply nested JSON", w.gateway.Config(t), "PUT", path + "/deep", nil, strings.Repeat(`{"a":`, 20000) + `"` + strings.Repeat("1", 40) + `"` + strings.Repeat("}", 20000), []int{400}},
		{"a hostile token", w.gateway.Config(t), "GET", path + "?continue=" + strings.Repeat("A", 60000), nil, "", []int{400, 431}},
		{"a name with a slash", w.gateway.Config(t), "POST", path, nil, `{"metadata":{"name":"../../x"}}`, []int{400, 422}},
		{"another namespace in the body", w.gateway.Config(t), "POST", path, nil, `{"metadata":{"name":"x","namespace":"default"}}`, []int{400}},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := send(t, test.config, test.method, test.path, test.header, test.body)
			body, _ := io.ReadAll(response.Body)
			for _, want := range test.want {
				if response.StatusCode == want {
					return
				}
			}
			t.Errorf("got %s, want %v: %.300s", response.Status, test.want, body)
		})
	}
	// The epoch and the group are ours to set, also for who may impersonate.
	admin := w.gateway.Config(t)
	admin.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}, Extra: map[string][]string{"cellplane.io/epoch": {"999"}}}
	review, err := clientFor(t, admin).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if extra := review.Status.UserInfo.Extra["cellplane.io/epoch"]; len(extra) > 0 {
		t.Errorf("an epoch of the client's reached the hub: %v", extra)
	}
}

// send sends a path as it is.
func send(t testing.TB, config *rest.Config, method, path string, header http.Header, body string) *http.Response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		request.Body, request.ContentLength = http.NoBody, 0
	} else {
		request.Header.Set("Content-Type", "application/json")
	}
	for key, values := range header {
		request.Header[key] = values
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}
