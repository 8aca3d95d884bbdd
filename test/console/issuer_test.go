package console

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"gopkg.in/go-jose/go-jose.v2"
	"gopkg.in/go-jose/go-jose.v2/jwt"
)

// issuer is an OpenID Connect issuer that knows one public client and signs everybody in as hal.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	pending url.Values // of the last authorization request
	refuse  bool
}

const issuerCode = "one-time-code"

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_ = json.NewEncoder(w).Encode(value) // fails only if the client has disconnected
}

// authorize sends the user back with a code, as after a password.
func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	i.mu.Lock()
	i.pending = query
	refuse := i.refuse
	i.mu.Unlock()
	if query.Get("response_type") != "code" || query.Get("client_id") != "cellplane" || query.Get("code_challenge_method") != "S256" || !strings.HasSuffix(query.Get("redirect_uri"), "/console/") {
		http.Error(w, "invalid_request", http.StatusBadRequest)
		return
	}
	answer := url.Values{"state": {query.Get("state")}, "code": {issuerCode}}
	if refuse {
		answer = url.Values{"state": {query.Get("state")}, "error": {"access_denied"}, "error_description": {"not today"}}
	}
	http.Redirect(w, r, query.Get("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
}

// token gives a token for a code and the verifier that belongs to it.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if r.FormValue("code") != issuerCode || base64.RawURLEncoding.EncodeToString(sum[:]) != i.pending.Get("code_challenge") || r.FormValue("redirect_uri") != i.pending.Get("redirect_uri") {
		writeJSON(w, map[string]any{"error": "invalid_grant"})
		return
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: i.key, KeyID: "1"}}, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": i.URL, "aud": "cellplane", "sub": "hal", "nonce": i.pending.Get("nonce"), "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}).CompactSerialize()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, map[string]any{"id_token": token, "token_type": "Bearer"})
}

// config writes a configuration of a local federation whose gateway trusts the issuer.
func (i *issuer) config(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, file := filepath.Join(dir, "issuer.crt"), filepath.Join(dir, "federation.yaml")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
metricsAgents: false
metricsServer: false
parts:
  gateway: {flags: {oidc-issuer-url: %q, oidc-client-id: cellplane, oidc-ca-file: %q, oidc-username-prefix: "oidc:"}}
`, i.URL, ca)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The issuer that the gateway trusts signs in, by a code that only this page can use.
func (f *federation) testIssuer(t *testing.T, browser context.Context) {
	p := open(t, browser, f.address())
	p.click("button", "Continue with "+strings.TrimPrefix(f.issuer.URL, "https://"))
	p.shows("oidc:hal")
	if address := evaluate[string](p, "location.href"); strings.Contains(address, issuerCode) {
		t.Errorf("the address still has the code: %s", address)
	}
	if kept := evaluate[string](p, "JSON.stringify({...localStorage, ...sessionStorage})"); kept != "{}" {
		t.Errorf("the page keeps %s", kept)
	}
	// An answer that this tab has not asked for is refused: somebody else may have sent it.
	p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(f.address()+"?state=forged&code="+issuerCode))
	p.shows("This sign-in was not begun in this tab")
	f.issuer.mu.Lock()
	f.issuer.refuse = true
	f.issuer.mu.Unlock()
	p.click("button", "Continue with")
	p.shows("The issuer refused: not today.")
}
