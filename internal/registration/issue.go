package registration

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/agent/identity"
)

// ReasonIssued is that of a request for a certificate that Issue has approved.
const ReasonIssued = "IssuedToMember"

// Issue gives the agent of a member its credentials: that of a cluster in push mode, which has joined. It needs an administrator of both, and no token.
// When it returns, a Secret of the member has a kubeconfig with which the agent is accepted by the published gateway. It can be repeated.
func Issue(ctx context.Context, hub kubernetes.Interface, o Options) error {
	member, err := kubernetes.NewForConfig(o.Member)
	if err != nil {
		return fmt.Errorf("preparing a client for the cluster: %w", err)
	}
	published := func(ctx context.Context) (*Gateway, error) {
		gateway, err := Published(ctx, hub)
		if err == nil && gateway == nil {
			err = errors.New("the hub does not know yet how clusters reach the gateway")
		}
		return gateway, err
	}
	return o.obtain(ctx, member, published, func(ctx context.Context, _ *Gateway, key crypto.Signer) ([]byte, error) {
		return o.issue(ctx, hub, key)
	})
}

// issue requests a certificate, approves the request and waits for the certificate. The hub manager adds the key to the Cluster.
func (o *Options) issue(ctx context.Context, hub kubernetes.Interface, key crypto.Signer) ([]byte, error) {
	request, err := o.newRequest(key)
	if err != nil {
		return nil, err
	}
	request.GenerateName = "agent-" + o.Name + "-"
	requests := hub.CertificatesV1().CertificateSigningRequests()
	if request, err = requests.Create(ctx, request, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("requesting a certificate for the agent: %w", err)
	}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: ReasonIssued, Message: "an administrator gives the agent of cluster " + o.Name + " its credentials",
	}}
	if _, err := requests.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approving the certificate of the agent: %w", err)
	}
	return o.signed(ctx, requests.Get, request.Name)
}

// newRequest returns a request for the certificate of the agent, without a name.
func (o *Options) newRequest(key crypto.Signer) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: identity.Subject(o.Name)}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName:        certificatesv1.KubeAPIServerClientSignerName,
		ExpirationSeconds: ptr.To(int32(o.Validity.Seconds())),
		Usages:            certificate.DefaultKubeletClientGetUsages(key),
	}}, nil
}

// signed waits for the certificate of a request.
func (o *Options) signed(ctx context.Context, get func(context.Context, string, metav1.GetOptions) (*certificatesv1.CertificateSigningRequest, error), name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.SigningTimeout)
	defer cancel()
	cert, err := awaitCertificate(ctx, func(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
		return get(ctx, name, metav1.GetOptions{})
	})
	if wait.Interrupted(err) {
		return nil, fmt.Errorf("CertificateSigningRequest %s was not decided in time: do the hub manager and the hub's kube-controller-manager run?", name)
	}
	return cert, err
}
