package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// MemberConnection is a connection to a member. Clients made from its configuration always send the latest token. Make one
// with Connect.
type MemberConnection struct {
	config  *rest.Config
	cluster clusterv1alpha1.ClusterSpec // what config was made from
	ca      []byte
	token   atomic.Pointer[string]
	own     bool            // made by ConnectOwn
	tunnel  *http.Transport // of ConnectThrough; nil otherwise
}

// Connect returns a connection to a member. It sends nothing yet.
func Connect(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*MemberConnection, error) {
	config, err := MemberConfig(cluster, secret)
	if err != nil {
		return nil, err
	}
	c := &MemberConnection{config: config, ca: secret.Data[MemberCAKey]}
	cluster.Spec.DeepCopyInto(&c.cluster)
	token := config.BearerToken
	c.token.Store(&token)
	config.BearerToken = ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &bearer{token: &c.token, next: next}
	})
	return c, nil
}

// ConnectOwn returns a connection to the member that this program runs in. Its configuration takes care of credentials itself.
func ConnectOwn(config *rest.Config) *MemberConnection {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0 // as for other members
	return &MemberConnection{config: config, own: true}
}

// Tunnelled reports whether the federation has no credentials for a member, and so reaches it only through a tunnel of its agent.
func Tunnelled(cluster *clusterv1alpha1.Cluster, credentials *clusterv1alpha1.LocalSecretReference) bool {
	return cluster.Spec.SyncMode == clusterv1alpha1.Pull && credentials == nil
}

// ConnectThrough returns a connection to a member through the tunnels of its agent, which dial connects to. The agent has the credentials: requests have
// to impersonate a user.
func ConnectThrough(cluster string, dial func(ctx context.Context, cluster string) (net.Conn, error)) *MemberConnection {
	c := &MemberConnection{tunnel: (&connection{}).transport()}
	c.tunnel.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, cluster) }
	// The tunnel is encrypted. A proxy of the environment does not know the name.
	c.config = &rest.Config{Host: "http://" + cluster, UserAgent: rest.DefaultKubernetesUserAgent(), QPS: -1, Transport: c.tunnel}
	c.config.Wrap(limitInTime)
	return c
}

// Config returns a client configuration that the caller may change.
func (c *MemberConnection) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Transport returns a transport for the requests of many users. Unlike that of a client it holds little of an answer that is not read.
func (c *MemberConnection) Transport(http2 bool) (http.RoundTripper, error) {
	if c.tunnel != nil {
		return rest.HTTPWrappersForConfig(c.config, c.tunnel)
	}
	config, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport := (&connection{config: config, http2: http2}).transport()
	if transport.Proxy = c.config.Proxy; transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	return rest.HTTPWrappersForConfig(c.config, transport)
}

// Apply applies a change of the Cluster or its Secret and reports whether it could. A new token is used from the next request
// on. Anything else, like another endpoint or authority, needs a new connection and new clients. The Secret of a member that is reached through a
// tunnel is nil.
func (c *MemberConnection) Apply(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) bool {
	if c.own {
		return true
	}
	if c.tunnel != nil || secret == nil {
		return c.tunnel != nil && secret == nil
	}
	if !c.leadsTo(&cluster.Spec, secret) {
		return false
	}
	token, err := memberToken(secret)
	if err != nil {
		return false
	}
	c.token.Store(&token)
	return true
}

func (c *MemberConnection) leadsTo(spec *clusterv1alpha1.ClusterSpec, secret *corev1.Secret) bool {
	return c.cluster.APIEndpoint == spec.APIEndpoint &&
		c.cluster.InsecureSkipTLSVerification == spec.InsecureSkipTLSVerification &&
		c.cluster.ProxyURL == spec.ProxyURL &&
		maps.Equal(c.cluster.ProxyHeader, spec.ProxyHeader) &&
		bytes.Equal(c.ca, secret.Data[MemberCAKey])
}

// bearer sends the latest token.
type bearer struct {
	token *atomic.Pointer[string]
	next  http.RoundTripper
}

// RoundTrip sends a request with the token.
func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+*b.token.Load())
	return b.next.RoundTrip(request)
}

// WrappedRoundTripper returns what the request is passed to.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }
