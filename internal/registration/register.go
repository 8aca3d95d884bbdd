package registration

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/cluster-bootstrap/util/tokens"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/membership"
)

const (
	// minValidity is the shortest validity that API servers accept.
	minValidity = 10 * time.Minute
	// presentTimeout bounds the attempts to log in with credentials that the member has already.
	presentTimeout = 10 * time.Second
)

// Options configure Register.
type Options struct {
	Discovery
	// Member is an administrator's configuration for the cluster.
	Member *rest.Config
	// Name is the name of the cluster in the federation.
	Name string
	// Namespace is where the Secret of the agent is in the member.
	Namespace string
	// About describes the cluster. Its ID is set by Register.
	About identity.Registration
	// Validity is that of the certificate.
	Validity time.Duration
	// SigningTimeout bounds the wait for the certificate.
	SigningTimeout time.Duration
}

func (o *Options) validate() error {
	if err := membership.ValidateName(o.Name); err != nil {
		return err
	}
	if o.Validity < minValidity || o.Validity > credentials.MaxValidity {
		return fmt.Errorf("the validity of the certificate must be between %d and %d seconds", int(minValidity.Seconds()), int(credentials.MaxValidity.Seconds()))
	}
	return o.Discovery.validate()
}

// Register registers a cluster in pull mode. When it returns, a Secret of the member has a kubeconfig with which its agent is accepted by the
// gateway, and the hub has a Cluster. It can be repeated after a failure.
func Register(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	member, err := kubernetes.NewForConfig(o.Member)
	if err != nil {
		return fmt.Errorf("preparing a client for the cluster: %w", err)
	}
	system, err := member.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the ID of the cluster: %w", err)
	}
	o.About.ID = string(system.UID)
	// The chart of the agent has rights there, for its Lease.
	if err := membership.EnsureNamespace(ctx, member, o.Name); err != nil {
		return err
	}
	return o.obtain(ctx, member, o.Discover, o.request)
}

// obtain gives the agent of a member credentials: a key, and the certificate that a request for it yields at the gateway that was found.
func (o *Options) obtain(ctx context.Context, member kubernetes.Interface, find func(context.Context) (*Gateway, error), request func(context.Context, *Gateway, crypto.Signer) ([]byte, error)) error {
	secret := credentials.Secret{Member: member, Namespace: o.Namespace}
	content, err := secret.Read(ctx)
	if err != nil {
		return err
	}
	if content != nil && content.Certificate != nil {
		return o.refuseAnother(ctx, secret, content)
	}
	gateway, err := find(ctx)
	if err != nil {
		return err
	}
	key, keyPEM, err := o.key(ctx, secret, content)
	if err != nil {
		return err
	}
	cert, err := request(ctx, gateway, key)
	if err != nil {
		return err
	}
	if err := secret.Write(ctx, credentials.Content{Cluster: gateway.cluster(), Certificate: cert, Key: keyPEM}); err != nil {
		return err
	}
	return o.confirm(ctx, secret, o.Timeout)
}

// refuseAnother succeeds if the member is registered already, under the same name and with credentials that are accepted.
func (o *Options) refuseAnother(ctx context.Context, secret credentials.Secret, content *credentials.Content) error {
	pair, err := content.Pair()
	if err != nil {
		return fmt.Errorf("%w; delete Secret %s if it is of no use", err, secret)
	}
	if name, _ := identity.Cluster(pair.Leaf.Subject.CommonName, pair.Leaf.Subject.Organization); name != o.Name {
		return fmt.Errorf("the cluster has credentials of %s in Secret %s; unregister it first", pair.Leaf.Subject.CommonName, secret)
	}
	if err := o.confirm(ctx, secret, min(o.Timeout, presentTimeout)); err != nil {
		return fmt.Errorf("the cluster has credentials in Secret %s that are not accepted; run `cellplane unregister %s`, or delete the Secret: %w", secret, o.Name, err)
	}
	return nil
}

// key returns the key of the last attempt, or a new one. It is kept before it is used: the name of the cluster is given to this key only.
func (o *Options) key(ctx context.Context, secret credentials.Secret, content *credentials.Content) (crypto.Signer, []byte, error) {
	if content != nil && len(content.Key) > 0 {
		parsed, err := keyutil.ParsePrivateKeyPEM(content.Key)
		if signer, ok := parsed.(crypto.Signer); ok && err == nil {
			return signer, content.Key, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, err
	}
	return key, text, secret.WriteKey(ctx, text)
}

// request requests the certificate with the bootstrap token and waits for it.
func (o *Options) request(ctx context.Context, gateway *Gateway, key crypto.Signer) ([]byte, error) {
	config := gateway.config()
	config.BearerToken = o.Token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	request, err := o.newRequest(key)
	if err != nil {
		return nil, err
	}
	about, err := json.Marshal(o.About)
	if err != nil {
		return nil, err
	}
	id, _, err := tokens.ParseToken(o.Token)
	if err != nil {
		return nil, err
	}
	request.Name, request.Annotations = identity.RequestPrefix(id)+utilrand.String(10), map[string]string{names.RegistrationAnnotation: string(about)}
	requests := client.CertificatesV1().CertificateSigningRequests()
	_, err = requests.Create(ctx, request, metav1.CreateOptions{})
	if apierrors.IsUnauthorized(err) {
		return nil, fmt.Errorf("the gateway does not accept token %s: it has expired, was deleted, or is not for authentication", id)
	}
	if err != nil {
		return nil, fmt.Errorf("requesting a certificate for the agent: %w", err)
	}
	return o.signed(ctx, requests.Get, request.Name)
}

// awaitCertificate polls: a bootstrap token may not watch.
func awaitCertificate(ctx context.Context, get func(context.Context) (*certificatesv1.CertificateSigningRequest, error)) ([]byte, error) {
	var cert []byte
	err := wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		request, err := get(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return false, fmt.Errorf("reading the request for a certificate: %w", err)
		}
		if err != nil {
			return false, nil // the gateway or the hub may be restarting
		}
		for _, condition := range request.Status.Conditions {
			if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("the federation refuses the cluster: %s (%s)", condition.Message, condition.Reason)
			}
		}
		cert = request.Status.Certificate
		return len(cert) > 0, nil
	})
	return cert, err
}

// confirm waits until the gateway accepts the credentials of the agent: it may not know the new Cluster yet.
func (o *Options) confirm(ctx context.Context, secret credentials.Secret, timeout time.Duration) error {
	agent, err := credentials.Open(ctx, secret)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(agent.Config())
	if err != nil {
		return err
	}
	err = attempts(ctx, timeout, func(ctx context.Context) error {
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if forged := new(tls.CertificateVerificationError); errors.As(err, &forged) {
			return final{err}
		}
		if err == nil && review.Status.UserInfo.Username != names.AgentUser(o.Name) {
			return final{fmt.Errorf("the gateway takes the agent for %s", review.Status.UserInfo.Username)}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("logging in at the gateway as the agent: %w", err)
	}
	return nil
}
