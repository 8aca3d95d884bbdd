package gateway

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/agents"
)

const tokenReviewTimeout = 10 * time.Second

// newAuthenticator accepts client certificates of the CA, tokens that the gateway's own authenticators accept, and tokens that the hub
// accepts: of service accounts, bootstrap tokens, and what its OIDC and webhook settings allow. Certificates of agents also need a key that
// their Cluster lists. Health checks need no authentication, nor does the ConfigMap by which clusters that register recognize the gateway.
func newAuthenticator(ca dynamiccertificates.CAContentProvider, own []authenticator.Token, reviews authenticationclient.AuthenticationV1Interface, clusters clusterLookup, ttl time.Duration) (authenticator.Request, error) {
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient:  reviews,
		TokenAccessReviewTimeout: tokenReviewTimeout,
		WebhookRetryBackoff:      genericoptions.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                 ttl,
	}
	tokens, _, err := delegating.New()
	if err != nil {
		return nil, err
	}
	certificates := &certificateCache{
		next: group.NewAuthenticatedGroupAdder(x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion)),
		ca:   ca,
	}
	known := []authenticator.Request{&agents.Authenticator{Certificates: certificates, Cluster: clusters}}
	if len(own) > 0 {
		cached := cache.New(tokenunion.New(own...), false, ttl, ttl)
		known = append(known, group.NewAuthenticatedGroupAdder(union.New(bearertoken.New(cached), websocket.NewProtocolAuthenticator(cached))))
	}
	forAnybody := anonymous.NewAuthenticator([]apiserver.AnonymousAuthCondition{{Path: "/livez"}, {Path: "/readyz"}, {Path: "/healthz"}, {Path: agents.ClusterInfoPath}})
	return union.NewFailOnError(union.New(append(known, tokens)...), forAnybody), nil
}

// clusterLookup returns a Cluster of the hub, or NotFound.
type clusterLookup func(name string) (*clusterv1alpha1.Cluster, error)

const (
	// certificateTTL is how long a verification is cached. The end of the certificate and a change of the CA take effect at once.
	certificateTTL = time.Minute
	// certificateCacheSize bounds the cache. A full cache is emptied.
	certificateCacheSize = 10000
)

// certificateCache caches verified client certificates: verifying one costs more than forwarding a request.
type certificateCache struct {
	next authenticator.Request
	ca   dynamiccertificates.CAContentProvider

	mu      sync.RWMutex
	bundle  []byte
	entries map[string]certificateEntry // by the certificate
}

type certificateEntry struct {
	response *authenticator.Response
	until    time.Time
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificateCache) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	bundle, now := c.ca.CurrentCABundleContent(), time.Now()
	c.mu.RLock()
	entry, found := c.entries[string(leaf.Raw)]
	current := bytes.Equal(c.bundle, bundle) // fast: usually the same slice
	c.mu.RUnlock()
	if found && current && now.Before(entry.until) {
		return entry.response, true, nil
	}
	response, ok, err := c.next.AuthenticateRequest(r)
	if !ok || err != nil {
		return response, ok, err
	}
	until := now.Add(certificateTTL)
	if leaf.NotAfter.Before(until) {
		until = leaf.NotAfter
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !current || len(c.entries) >= certificateCacheSize || c.entries == nil {
		c.bundle, c.entries = bundle, map[string]certificateEntry{}
	}
	c.entries[string(leaf.Raw)] = certificateEntry{response, until}
	return response, true, nil
}
