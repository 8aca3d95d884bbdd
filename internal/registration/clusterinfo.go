package registration

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// Gateway is how a gateway is reached and recognized.
type Gateway struct {
	// Server is its URL.
	Server string
	// ServerName is the name in its certificate, if that differs from the host of the URL.
	ServerName string
	// CA are the certificates of its CA, in PEM.
	CA []byte
}

// Publish writes how the gateway is reached and recognized to the hub, which signs it with every bootstrap token for signing.
func Publish(ctx context.Context, hub kubernetes.Interface, gateway Gateway) error {
	if _, err := HashesOf(gateway.CA); err != nil {
		return fmt.Errorf("the CA of the gateway: %w", err)
	}
	kubeconfig, err := gateway.kubeconfig()
	if err != nil {
		return err
	}
	maps := hub.CoreV1().ConfigMaps(metav1.NamespacePublic)
	present, err := maps.Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: bootstrapapi.ConfigMapClusterInfo, Namespace: metav1.NamespacePublic},
			Data:       map[string]string{bootstrapapi.KubeConfigKey: kubeconfig},
		}, metav1.CreateOptions{})
	case err == nil && present.Data[bootstrapapi.KubeConfigKey] == kubeconfig:
		return nil
	case err == nil:
		present.Data = map[string]string{bootstrapapi.KubeConfigKey: kubeconfig} // the former signatures are of no use
		_, err = maps.Update(ctx, present, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s to the hub: %w", metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, err)
	}
	return nil
}

// Published returns what Publish has written to the hub, nil if nothing.
func Published(ctx context.Context, hub kubernetes.Interface) (*Gateway, error) {
	info, err := hub.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s of the hub: %w", metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, err)
	}
	return gatewayIn(info)
}

// kubeconfig returns a kubeconfig that names the gateway and no user.
func (g Gateway) kubeconfig() (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = g.cluster()
	data, err := clientcmd.Write(*config)
	return string(data), err
}

// cluster returns the gateway as kubeconfigs have it.
func (g Gateway) cluster() *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{Server: g.Server, TLSServerName: g.ServerName, CertificateAuthorityData: g.CA}
}

func gatewayIn(info *corev1.ConfigMap) (*Gateway, error) {
	config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in ConfigMap %s/%s: %w", metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, err)
	}
	if len(config.Clusters) != 1 {
		return nil, fmt.Errorf("the kubeconfig in ConfigMap %s/%s must have one cluster", metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo)
	}
	for _, cluster := range config.Clusters {
		return &Gateway{Server: cluster.Server, ServerName: cluster.TLSServerName, CA: cluster.CertificateAuthorityData}, nil
	}
	return nil, nil
}

// hashPrefix begins the hash of a CA certificate.
const hashPrefix = "sha256:"

// HashesOf returns the hashes of the public keys of CA certificates in PEM, as kubeadm writes them.
func HashesOf(ca []byte) ([]string, error) {
	certificates, err := cert.ParseCertsPEM(ca)
	if err != nil {
		return nil, errors.New("it has no certificate in PEM")
	}
	hashes := make([]string, len(certificates))
	for i, certificate := range certificates {
		hashes[i] = hashOf(certificate)
	}
	return hashes, nil
}

func hashOf(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// pinned returns the certificates of a CA whose hashes are among the given ones.
func pinned(ca []byte, hashes []string) ([]byte, error) {
	certificates, err := cert.ParseCertsPEM(ca)
	if err != nil {
		return nil, errors.New("the gateway presents no CA certificate")
	}
	certificates = slices.DeleteFunc(certificates, func(c *x509.Certificate) bool { return !slices.Contains(hashes, hashOf(c)) })
	if len(certificates) == 0 {
		return nil, errors.New("no CA certificate of the gateway has the hash of --discovery-token-ca-cert-hash: this is another gateway, or somebody pretends to be it")
	}
	return cert.EncodeCertificates(certificates...)
}
