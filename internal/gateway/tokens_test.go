package gateway_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// issuer is an OpenID Connect issuer.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "response_types_supported": []string{"id_token"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // fails only if the client has disconnected
}

func caFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// token signs claims, in addition to the standard ones.
func (i *issuer) token(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"iss": i.URL, "aud": "cellplane", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for name, value := range claims {
		all[name] = value
	}
	token, err := jwt.Signed(signer).Claims(all).CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// testOwnTokens authenticates users by tokens of an OpenID Connect issuer, with flags and with a file, and of a webhook.
func testOwnTokens(t *testing.T, w *world) {
	provider := newIssuer(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := provider.token(t, provider.key, map[string]any{"sub": "hal", "groups": []string{"crew"}})
	refused := map[string]string{
		"nonsense":          "nonsense",
		"signed by another": provider.token(t, other, map[string]any{"sub": "hal"}),
		"expired":           provider.token(t, provider.key, map[string]any{"sub": "hal", "exp": time.Now().Add(-time.Hour).Unix()}),
		"for others":        provider.token(t, provider.key, map[string]any{"sub": "hal", "aud": "others"}),
		"of others":         provider.token(t, provider.key, map[string]any{"sub": "hal", "iss": "https://issuer.example"}),
	}
	ca := caFile(t, provider.Server)
	t.Run("OIDC by flags", func(t *testing.T) {
		g := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) {
			o.Tokens.OIDC.IssuerURL, o.Tokens.OIDC.ClientID, o.Tokens.OIDC.CAFile = provider.URL, "cellplane", ca
			o.Tokens.OIDC.UsernamePrefix, o.Tokens.OIDC.GroupsClaim, o.Tokens.OIDC.GroupsPrefix = "oidc:", "groups", "oidc:"
		})
		checkTokens(t, g, good, "oidc:hal", "oidc:crew", refused)
	})
	t.Run("OIDC by a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "authentication.yaml")
		writeAuthentication(t, file, provider, ca, "file:")
		g := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.Tokens.ConfigFile, o.TokenCacheTTL = file, time.Millisecond })
		checkTokens(t, g, good, "file:hal", "file:crew", refused)

		failures := func(ctx context.Context) (float64, error) {
			return sumOfMetric(ctx, g.Client(t), func(series string) bool {
				return series == `cellplane_gateway_authentication_config_reloads_total{status="failure"}`
			})
		}
		before, err := failures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the gateway has read the invalid file", func(ctx context.Context) (bool, error) {
			now, err := failures(ctx)
			return now > before, err
		})
		checkTokens(t, g, good, "file:hal", "file:crew", refused) // the former file stays in force
		writeAuthentication(t, file, provider, ca, "changed:")
		testenv.Eventually(t, "the file is read again", func(ctx context.Context) (bool, error) {
			name, err := bearer(ctx, t, g, good)
			return name == "changed:hal", err
		})
		checkTokens(t, g, good, "changed:hal", "changed:crew", refused)
	})
	t.Run("Webhook", func(t *testing.T) {
		hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Status.Authenticated = review.Spec.Token == "open-sesame"
			if review.Status.Authenticated {
				review.Status.User = authenticationv1.UserInfo{Username: "ali", Groups: []string{"baba"}}
			}
			writeJSON(w, review)
		}))
		defer hook.Close()
		file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
		target := &rest.Config{Host: hook.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: caFile(t, hook)}}
		if err := clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"webhook": target}, "webhook"), file); err != nil {
			t.Fatal(err)
		}
		g := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.Tokens.WebhookConfigFile = file })
		checkTokens(t, g, "open-sesame", "ali", "baba", map[string]string{"another": "sesame"})
	})
	t.Run("Options that do not fit", func(t *testing.T) {
		options := gatewaytest.Options(t, w.Federation)
		options.Tokens.OIDC.IssuerURL = provider.URL
		options.Tokens.WebhookVersion = "v7"
		completed, err := options.Complete()
		if err != nil {
			t.Fatal(err)
		}
		if err := completed.Validate(); err == nil {
			t.Error("an issuer without an audience is accepted")
		}
	})
}

// writeAuthentication writes an AuthenticationConfiguration that adds a prefix to names.
func writeAuthentication(t *testing.T, file string, provider *issuer, ca, prefix string) {
	t.Helper()
	certificate, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer": map[string]any{"url": provider.URL, "audiences": []string{"cellplane"}, "certificateAuthority": string(certificate)},
			"claimMappings": map[string]any{
				"username": map[string]any{"expression": "'" + prefix + "' + claims.sub"},
				"groups":   map[string]any{"claim": "groups", "prefix": prefix},
			},
		}},
	})
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bearer returns the user name of a token.
func bearer(ctx context.Context, t *testing.T, g *gatewaytest.Gateway, token string) (string, error) {
	config := &rest.Config{Host: g.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: g.CA()}}
	review, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// checkTokens checks the user of a token, on the hub and in cells, that tokens of the hub are still accepted, and that others are refused.
func checkTokens(t *testing.T, g *gatewaytest.Gateway, good, name, group string, refused map[string]string) {
	t.Helper()
	with := func(token string) *rest.Config {
		return &rest.Config{Host: g.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: g.CA()}}
	}
	testenv.Eventually(t, "the token is accepted", func(ctx context.Context) (bool, error) {
		review, err := clientFor(t, with(good)).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		if user := review.Status.UserInfo; user.Username != name || !slices.Contains(user.Groups, group) || !slices.Contains(user.Groups, "system:authenticated") {
			t.Fatalf("the user of the token is %v", user)
		}
		return true, nil
	})
	_, err := clientFor(t, with(good)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
		t.Errorf("listing without a right: %v", err)
	}
	for what, token := range refused {
		if _, err := clientFor(t, with(token)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("token %q: %v, want 401", what, err)
		}
	}
	token, err := g.Client(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, with(token.Status.Token)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a token of the hub: %v", err)
	}
}

// testBootstrapToken authenticates a user by a bootstrap token. Its Secret is created on the hub itself, because through the gateway it
// would be stored in a cell.
func testBootstrapToken(t *testing.T, w *world) {
	if _, err := clientFor(t, adminOf(t, w.Hub)).CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": "system:bootstrappers:cells",
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the token is known", func(ctx context.Context) (bool, error) {
		name, err := bearer(ctx, t, w.gateway, "abcdef.0123456789abcdef")
		return name == "system:bootstrap:abcdef", err
	})
	checkTokens(t, w.gateway, "abcdef.0123456789abcdef", "system:bootstrap:abcdef", "system:bootstrappers:cells", map[string]string{"another secret": "abcdef.fedcba9876543210"})
}
