package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testComponents has a user with the rights of the role `edit` in a namespace try to become one of the identities that guards exempt: the namespace
// controller, and components of the control plane. The role may make tokens of the namespace's service accounts, and impersonate these.
func testComponents(t *testing.T, w *world) {
	mine := gatewaytest.Namespace(t, w.Federation, "users-components")
	w.grantEdit(t, mine, "mallory")
	robot := "system:serviceaccount:" + mine + ":robot"
	mallory := clientFor(t, w.gateway.ConfigFor(t, "mallory"))
	testenv.Eventually(t, "the rights are known", func(ctx context.Context) (bool, error) {
		_, err := mallory.CoreV1().ServiceAccounts(mine).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
	for _, surface := range []string{"", "/federation"} {
		as := func(impersonated rest.ImpersonationConfig) kubernetes.Interface {
			config := w.gateway.ConfigFor(t, "mallory")
			config.Host += surface
			config.Impersonate = impersonated
			return clientFor(t, config)
		}
		denied := func(what string, err error) {
			t.Helper()
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s%s: %v, want it forbidden", what, surface, err)
			}
		}
		self := as(rest.ImpersonationConfig{})
		// What the role allows.
		token, err := self.CoreV1().ServiceAccounts(mine).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil || token.Status.Token == "" {
			t.Errorf("a token of the own service account%s: %v", surface, err)
		}
		who, err := as(rest.ImpersonationConfig{UserName: robot}).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || who.Status.UserInfo.Username != robot {
			t.Errorf("impersonating the own service account%s: %+v, %v", surface, who, err)
		}
		// Tokens of others.
		for _, account := range []string{"namespace-controller", "generic-garbage-collector"} {
			_, err = self.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			denied("a token of "+account, err)
			_, err = self.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: corev1.SecretTypeServiceAccountToken,
			}, metav1.CreateOptions{})
			denied("a Secret for a token of "+account, err)
		}
		if _, err := self.CoreV1().ServiceAccounts(mine).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x:kube-system:namespace-controller"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a service account whose name has colons%s: %v, want it refused", surface, err)
		}
		// Certificates.
		denied("a request for a certificate", requestCertificate(t.Context(), t, self, names.ComponentPrefix+"hub-manager"))
		// Impersonation, by the user and by the user's service account.
		byRobot := w.gateway.ConfigFor(t, "mallory")
		byRobot.Host += surface
		byRobot.TLSClientConfig.CertData, byRobot.TLSClientConfig.KeyData, byRobot.TLSClientConfig.CertFile, byRobot.TLSClientConfig.KeyFile = nil, nil, "", ""
		byRobot.BearerToken = token.Status.Token
		for _, component := range []rest.ImpersonationConfig{
			{UserName: "system:serviceaccount:kube-system:namespace-controller"},
			{UserName: names.GatewayUser},
			{UserName: names.ComponentPrefix + "hub-manager"},
			{UserName: names.EngineUser("cell-a")},
			{UserName: robot, Groups: []string{"system:masters"}},
			{UserName: robot, Groups: []string{"system:serviceaccounts:kube-system"}},
			{UserName: robot, Extra: map[string][]string{names.EpochExtra: {"1"}}},
		} {
			list := func(client kubernetes.Interface) error {
				_, err := client.CoreV1().ConfigMaps(mine).List(t.Context(), metav1.ListOptions{})
				return err
			}
			denied("impersonating "+component.UserName, list(as(component)))
			config := rest.CopyConfig(byRobot)
			config.Impersonate = component
			denied("a service account impersonating "+component.UserName, list(clientFor(t, config)))
		}
		// What the namespace controller alone may do unchecked.
		_, err = self.CoreV1().Namespaces().Finalize(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: mine}}, metav1.UpdateOptions{})
		denied("finalizing a namespace", err)
	}
}

// grantEdit gives a user the rights of the role `edit` by which identities can be obtained. The control plane of the test does not aggregate roles.
func (w *world) grantEdit(t *testing.T, namespace, user string) {
	t.Helper()
	rules := []rbacv1.PolicyRule{
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}},
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"configmaps", "secrets", "serviceaccounts"}},
	}
	if _, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "as-edit"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "as-edit"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "as-edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// requestCertificate requests a client certificate for a user.
func requestCertificate(ctx context.Context, t *testing.T, client kubernetes.Interface, user string) error {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}, key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "stolen-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	return err
}
