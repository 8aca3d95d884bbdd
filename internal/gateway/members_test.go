package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testMemberProxy reaches a member through clusters/proxy of a gateway.
func testMemberProxy(t *testing.T, shared *world) {
	federation, state, audited := shared.Federation, t.TempDir(), t.TempDir()
	policy, log := filepath.Join(audited, "policy.yaml"), filepath.Join(audited, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, federation, func(o *gateway.Options) {
		o.StateDir, o.Audit.PolicyFile, o.Audit.LogOptions.Path = state, policy, log
	})
	w := &world{Federation: federation, gateway: g, client: g.Client(t)}
	memberConfig := adminOf(t, federation.Members[0])
	member := clientFor(t, memberConfig)
	join(t, w, member, memberConfig)

	const proxy = "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy"
	through := func(config *rest.Config) kubernetes.Interface {
		config.Host += proxy
		return clientFor(t, config)
	}
	admin, frank := through(g.Config(t)), through(g.ConfigFor(t, "frank"))
	testenv.Eventually(t, "the member is reached", func(ctx context.Context) (bool, error) {
		nodes, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 1, err
	})
	// The member sees the caller's identity.
	review, err := admin.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != "cellplane-admin" {
		t.Errorf("the member sees the user %v: %v", review, err)
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	stream, err := admin.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=x"})
	if err != nil {
		t.Fatal(err)
	}
	next(t, stream)
	stream.Stop()

	throughProxy := g.Config(t)
	throughProxy.Host += proxy
	t.Run("Streams", func(t *testing.T) { testStreams(t, federation.Members[0], throughProxy) })

	status := func(config *rest.Config, path string, header http.Header) (int, string) {
		response := send(t, config, http.MethodGet, path, header, "")
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	if code, body := status(g.ConfigFor(t, "frank"), proxy+"/api/v1/nodes", nil); code != http.StatusForbidden || !strings.Contains(body, "clusters/proxy") {
		t.Errorf("without the right on the hub: %d, %s", code, body)
	}
	if _, err := w.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"cluster.karmada.io"}, Resources: []string{"clusters/proxy"}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "frank"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "proxy"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "frank reaches the member", func(ctx context.Context) (bool, error) {
		review, err := frank.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err == nil && review.Status.UserInfo.Username == "frank", err
	})
	forged := http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}
	if code, body := status(g.ConfigFor(t, "frank"), proxy+"/api/v1/nodes", forged); code != http.StatusForbidden || !strings.Contains(body, `"frank\" cannot list`) {
		t.Errorf("without a right in the member: %d, %s", code, body)
	}
	if code, _ := status(g.Config(t), "/apis/cluster.karmada.io/v1alpha1/clusters/nobody/proxy/api", nil); code != http.StatusNotFound {
		t.Errorf("a missing cluster: %d", code)
	}
	t.Run("AuditOfEntry", func(t *testing.T) { testAuditOfEntry(t, admin, log, proxy) })
	t.Run("WithoutHub", func(t *testing.T) { testMemberWithoutHub(t, w, state, proxy) })
}

// testAuditOfEntry opens the entry of an object in the member as `cellplane entry open` does: the record names the user, the object and who manages the field.
func testAuditOfEntry(t *testing.T, admin kubernetes.Interface, log, proxy string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": entry.Entry{Reason: "repair"}.Annotations()}})
	if err != nil {
		t.Fatal(err)
	}
	open, err := admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "x", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: entry.FieldManager})
	if err != nil || open.Annotations[names.EntryReasonAnnotation] != "repair" {
		t.Fatalf("the object is %v: %v", open, err)
	}
	record := completed(t, log, "patch")
	if record.User.Username != "cellplane-admin" || record.ResponseStatus == nil || record.ResponseStatus.Code != http.StatusOK || record.StageTimestamp.IsZero() {
		t.Errorf("the record of the patch is %+v", record)
	}
	if want := proxy + "/api/v1/namespaces/default/configmaps/x?fieldManager=" + entry.FieldManager; record.RequestURI != want {
		t.Errorf("the record has the request %s, want %s", record.RequestURI, want)
	}
	if about := record.ObjectRef; about == nil || about.Resource != "clusters" || about.Name != "member1" || about.Subresource != "proxy" || record.Annotations["cellplane.io/cluster"] != "member1" {
		t.Errorf("the record is about %+v with the annotations %v, want the proxy of member1", about, record.Annotations)
	}
}

// testMemberWithoutHub reaches the member while the hub is down, also through a gateway that starts meanwhile.
func testMemberWithoutHub(t *testing.T, w *world, state, proxy string) {
	file := filepath.Join(state, "members.json")
	testenv.Eventually(t, "the credentials for the member are kept", func(context.Context) (bool, error) {
		for _, other := range []string{"rbac.json", "protection.json", "discovery.json"} {
			if _, err := os.Stat(filepath.Join(state, other)); err != nil {
				return false, err
			}
		}
		kept, err := os.ReadFile(file)
		return bytes.Contains(kept, []byte("member1-impersonator")), err
	})
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with credentials is %v: %v", info, err)
	}
	hub, err := w.Hub.Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Halt(); err != nil {
		t.Fatal(err)
	}
	defer restartHub(t, w)
	reach := func(g *gatewaytest.Gateway) {
		t.Helper()
		config := g.Config(t)
		config.Host += proxy
		testenv.Eventually(t, "the member is reached without the hub", func(ctx context.Context) (bool, error) {
			nodes, err := clientFor(t, config).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err == nil && len(nodes.Items) == 1, err
		})
	}
	reach(w.gateway)
	w.gateway.Stop()
	again := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.StateDir = state })
	reach(again)
	if response := send(t, again.Config(t), http.MethodGet, "/apis/cluster.karmada.io/v1alpha1/clusters/nobody/proxy/api", nil, ""); response.StatusCode != http.StatusNotFound {
		t.Errorf("a missing cluster: %s", response.Status)
	}
}

// join registers a member on the hub, with an identity that may only impersonate.
func join(t *testing.T, w *world, member kubernetes.Interface, memberConfig *rest.Config) {
	t.Helper()
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(member.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}}, metav1.CreateOptions{}))
	must(member.CoreV1().ServiceAccounts(names.ClusterNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "impersonator"}}, metav1.CreateOptions{}))
	must(member.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "impersonator"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"impersonate"}, APIGroups: []string{"", "authentication.k8s.io"}, Resources: []string{"*"}}}}, metav1.CreateOptions{}))
	must(member.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "impersonator"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: names.ClusterNamespace, Name: "impersonator"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "impersonator"}}, metav1.CreateOptions{}))
	token, err := member.CoreV1().ServiceAccounts(names.ClusterNamespace).CreateToken(ctx, "impersonator", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(token, err)

	must(w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}}, metav1.CreateOptions{}))
	if err := rest.LoadTLSFiles(memberConfig); err != nil {
		t.Fatal(err)
	}
	must(w.client.CoreV1().Secrets(names.ClusterNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "member1-impersonator"}, Data: map[string][]byte{"token": []byte(token.Status.Token), "caBundle": memberConfig.CAData}}, metav1.CreateOptions{}))
	objects, err := dynamic.NewForConfig(w.gateway.Config(t))
	must(objects, err)
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "member1"},
		"spec": map[string]any{
			"syncMode": "Push", "apiEndpoint": memberConfig.Host,
			"impersonatorSecretRef": map[string]any{"namespace": names.ClusterNamespace, "name": "member1-impersonator"},
		},
	}}
	must(objects.Resource(cluster.GroupVersionKind().GroupVersion().WithResource("clusters")).Create(ctx, cluster, metav1.CreateOptions{}))
}
