// Package credentials gives an agent its access to the gateway: the kubeconfig that `cellplane register` has written to a Secret of the
// member. It renews the certificate before it ends and writes the new one to the Secret.
//
//	agent, err := credentials.Open(ctx, credentials.Secret{Member: client})
//	…
//	go agent.Follow(ctx, time.Minute) // in every replica
//	go agent.Run(ctx)                 // in the leader
//	use(agent.Config())
package credentials

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/agent/identity"
)

// MaxValidity is the longest validity of a certificate that an agent may request.
const MaxValidity = 365 * 24 * time.Hour

// Credentials are the access of an agent to the gateway.
type Credentials struct {
	cluster string
	store   *store
	config  *rest.Config
	client  kubernetes.Interface
}

// Open reads the credentials of a member's agent.
func Open(ctx context.Context, secret Secret) (*Credentials, error) {
	content, err := secret.Read(ctx)
	if err != nil {
		return nil, err
	}
	if content == nil || content.Certificate == nil {
		return nil, fmt.Errorf("there is no certificate in Secret %s of the member; get one with `cellplane register`", secret)
	}
	pair, err := content.Pair()
	if err != nil {
		return nil, err
	}
	cluster, _ := identity.Cluster(pair.Leaf.Subject.CommonName, pair.Leaf.Subject.Organization)
	if cluster == "" {
		return nil, fmt.Errorf("the certificate in Secret %s of the member is that of %s, which is no agent", secret, pair.Leaf.Subject)
	}
	c := &Credentials{cluster: cluster, store: &store{secret: secret, gateway: content.Cluster, current: pair}}
	if c.store.transport, err = newTransport(content.Cluster, c.store.certificate); err != nil {
		return nil, err
	}
	c.config = &rest.Config{Host: content.Cluster.Server, Transport: c.store.transport}
	c.client, err = kubernetes.NewForConfig(c.config)
	return c, err
}

// Cluster returns the name of the member in the federation.
func (c *Credentials) Cluster() string { return c.cluster }

// Config returns a client configuration for the gateway. Its clients use the new certificate after a renewal.
func (c *Credentials) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Expires returns when the present certificate ends.
func (c *Credentials) Expires() time.Time { return c.store.certificate().Leaf.NotAfter }

// Follow uses certificates that another replica of the agent has written to the Secret, and a new CA of the gateway, until the context ends. It
// looks once in a period.
func (c *Credentials) Follow(ctx context.Context, period time.Duration) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.store.reload(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "looking for a new certificate of the agent failed, will retry")
		}
	}, period)
}

// Run renews the certificate, between 70 and 90 percent of its validity, until the context ends. If an agent has several replicas, only the leader
// may call it.
func (c *Credentials) Run(ctx context.Context) error {
	leaf := c.store.certificate().Leaf
	validity := min(leaf.NotAfter.Sub(leaf.NotBefore), MaxValidity)
	c.store.ctx = ctx
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn:                  func(*tls.Certificate) (kubernetes.Interface, error) { return c.client, nil },
		Template:                     &x509.CertificateRequest{Subject: identity.Subject(c.cluster)},
		SignerName:                   certificatesv1.KubeAPIServerClientSignerName,
		RequestedCertificateLifetime: &validity,
		GetUsages:                    certificate.DefaultKubeletClientGetUsages,
		CertificateStore:             c.store,
		Name:                         "agent",
		Ctx:                          &ctx,
	})
	if err != nil {
		return fmt.Errorf("preparing to renew the certificate of the agent: %w", err)
	}
	manager.Start()
	<-ctx.Done()
	manager.Stop()
	return nil
}

// store keeps the present certificate, and every new one in the Secret too. It implements certificate.Store.
type store struct {
	secret    Secret
	transport *transport
	ctx       context.Context // of Run; the interface has none

	mu      sync.Mutex
	gateway *clientcmdapi.Cluster
	current *tls.Certificate
}

func (s *store) certificate() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Current implements certificate.Store.
func (s *store) Current() (*tls.Certificate, error) { return s.certificate(), nil }

// writeEvery is the time between two attempts to write the Secret.
const writeEvery = 5 * time.Second

// Update implements certificate.Store. The new certificate is used at once. It does not give up writing it: the former one will end.
func (s *store) Update(cert, key []byte) (*tls.Certificate, error) {
	content := Content{Certificate: cert, Key: key}
	pair, err := content.Pair()
	if err != nil {
		return nil, err
	}
	s.use(pair)
	err = wait.PollUntilContextCancel(s.ctx, writeEvery, true, func(ctx context.Context) (bool, error) {
		err := s.write(ctx, content)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(s.ctx).Error(err, "the new certificate of the agent is not kept yet")
		}
		return err == nil, nil
	})
	return pair, err
}

// write writes a certificate to the Secret. The gateway in the Secret stays: somebody may have given it a new CA.
func (s *store) write(ctx context.Context, content Content) error {
	present, err := s.secret.Read(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if present != nil && present.Cluster != nil {
		s.gateway = present.Cluster
	}
	content.Cluster = s.gateway
	s.mu.Unlock()
	return s.secret.Write(ctx, content)
}

// use replaces the present certificate.
func (s *store) use(pair *tls.Certificate) {
	s.mu.Lock()
	s.current = pair
	s.mu.Unlock()
	s.transport.dialer.CloseAll() // connections are authenticated once, with the certificate of that time
}

// reload uses the CA of the Secret, and its certificate if that ends later than the present one.
func (s *store) reload(ctx context.Context) error {
	content, err := s.secret.Read(ctx)
	if err != nil || content == nil || content.Certificate == nil {
		return err // without a Secret the present one is the best there is
	}
	if err := s.transport.trust(content.Cluster); err != nil {
		return err
	}
	s.mu.Lock()
	s.gateway = content.Cluster
	s.mu.Unlock()
	pair, err := content.Pair()
	if err != nil {
		return err
	}
	if present := s.certificate(); pair.Leaf.Subject.CommonName == present.Leaf.Subject.CommonName && pair.Leaf.NotAfter.After(present.Leaf.NotAfter) {
		s.use(pair)
	}
	return nil
}
