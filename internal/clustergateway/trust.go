package clustergateway

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/cellplane/cellplane/internal/clustergateway/serve"
)

const (
	// A verified certificate is cached for trustTime. At most trustSize are cached.
	trustTime = time.Minute
	trustSize = 1000
)

// trust authenticates gateways: clients with a certificate of the right authority and name.
type trust struct {
	names    []string
	verifier authenticator.Request
	bundle   func() []byte

	mu       sync.Mutex
	verified map[[sha256.Size]byte]time.Time // hash of certificate and authority → expiry
}

func newTrust(ca dynamiccertificates.CAContentProvider, names []string) *trust {
	return &trust{
		names:    names,
		verifier: x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion),
		bundle:   ca.CurrentCABundleContent,
		verified: map[[sha256.Size]byte]time.Time{},
	}
}

// only serves requests of gateways only.
func (t *trust) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !t.trusts(r) {
			serve.WriteError(w, r, apierrors.NewUnauthorized("the cluster-gateway serves gateways only; send the request to a gateway"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (t *trust) trusts(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	leaf, now := r.TLS.PeerCertificates[0], time.Now()
	key := sha256.Sum256(append(slices.Clone(leaf.Raw), t.bundle()...))
	t.mu.Lock()
	until, known := t.verified[key]
	t.mu.Unlock()
	if known && now.Before(until) {
		return true
	}
	response, ok, err := t.verifier.AuthenticateRequest(r)
	if err != nil || !ok || !slices.Contains(t.names, response.User.GetName()) {
		return false
	}
	until = now.Add(trustTime)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verified) >= trustSize {
		clear(t.verified)
	}
	t.verified[key] = until
	return true
}
