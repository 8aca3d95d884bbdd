// Package login issues client certificates for users of the gateway.
package login

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

// User is the owner of a certificate.
type User struct {
	// Name is the user's name in RBAC.
	Name string
	// Groups are the groups the user is in.
	Groups []string
	// For is the lifetime of the certificate; the hub may shorten it.
	For time.Duration
}

// Certificate is a user's certificate with its key, in PEM.
type Certificate struct{ Cert, Key []byte }

// Validate returns what is invalid.
func (u User) Validate() error {
	switch {
	case u.Name == "":
		return errors.New("the user needs a name")
	case strings.HasPrefix(u.Name, "system:"):
		return fmt.Errorf("the user %q cannot be created: names that begin with system: belong to the control plane", u.Name)
	case u.For < 10*time.Minute:
		return errors.New("the lifetime of a certificate must be at least 10 minutes")
	}
	for _, group := range u.Groups {
		if strings.HasPrefix(group, "system:") || strings.HasPrefix(group, "cellplane:") {
			return fmt.Errorf("the group %q cannot be given: names that begin with system: or cellplane: belong to the control plane", group)
		}
	}
	return nil
}

// Issue lets the hub sign a certificate. The key never leaves this process. The client needs the right to create, approve and read
// CertificateSigningRequests.
func Issue(ctx context.Context, client kubernetes.Interface, u User) (Certificate, error) {
	if err := u.Validate(); err != nil {
		return Certificate{}, err
	}
	key, request, err := newRequest(u)
	if err != nil {
		return Certificate{}, fmt.Errorf("creating a key for %s: %w", u.Name, err)
	}
	requests := client.CertificatesV1().CertificateSigningRequests()
	created, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cellplane-user-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           request,
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: ptr.To(int32(u.For.Seconds())),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return Certificate{}, fmt.Errorf("requesting a certificate for %s: %w", u.Name, err)
	}
	created.Status.Conditions = append(created.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "CellplaneUserCreate",
		Message: "approved by `cellplane user create`",
	})
	if _, err := requests.UpdateApproval(ctx, created.Name, created, metav1.UpdateOptions{}); err != nil {
		return Certificate{}, fmt.Errorf("approving the certificate of %s: %w", u.Name, err)
	}
	cert, err := waitSigned(ctx, requests, created.Name)
	if err != nil {
		return Certificate{}, fmt.Errorf("waiting for the certificate of %s: %w", u.Name, err)
	}
	return Certificate{Cert: cert, Key: key}, nil
}

func newRequest(u User) (key, request []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: u.Name, Organization: u.Groups}}, private)
	if err != nil {
		return nil, nil, err
	}
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), nil
}

func waitSigned(ctx context.Context, client clientv1.CertificateSigningRequestInterface, name string) ([]byte, error) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	var cert []byte
	_, err := watchtools.UntilWithSync(ctx, requestSource(client, only), &certificatesv1.CertificateSigningRequest{}, nil, func(event watch.Event) (bool, error) {
		request, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || event.Type == watch.Deleted {
			return false, fmt.Errorf("CertificateSigningRequest %s was deleted", name)
		}
		for _, condition := range request.Status.Conditions {
			if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
				return false, fmt.Errorf("the hub refused the request: %s", condition.Message)
			}
		}
		cert = request.Status.Certificate
		return len(cert) > 0, nil
	})
	return cert, err
}

func requestSource(client clientv1.CertificateSigningRequestInterface, selector string) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return client.Watch(ctx, options)
		},
	}
}

// Kubeconfig returns a self-contained kubeconfig of a user for a cluster.
func Kubeconfig(cluster *clientcmdapi.Cluster, user string, certificate Certificate) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["cellplane"] = cluster
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate.Cert, ClientKeyData: certificate.Key}
	config.Contexts["cellplane"] = &clientcmdapi.Context{Cluster: "cellplane", AuthInfo: user}
	config.CurrentContext = "cellplane"
	return config
}
