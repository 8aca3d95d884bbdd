package clusterapi

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster API keeps an administrator's kubeconfig of each cluster in a Secret beside it.
const (
	kubeconfigSuffix = "-kubeconfig"
	kubeconfigKey    = "value"
)

// kubeconfig returns the administrator's configuration for a cluster.
func (c *Controller) kubeconfig(ctx context.Context, key types.NamespacedName) (*rest.Config, error) {
	name := key.Name + kubeconfigSuffix
	secret, err := c.management.CoreV1().Secrets(key.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the Secret %s/%s with its kubeconfig does not exist yet", key.Namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s/%s of the management cluster: %w", key.Namespace, name, err)
	}
	config, err := memberConfig(secret.Data[kubeconfigKey])
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig in the Secret %s/%s cannot be used: %w", key.Namespace, name, err)
	}
	return config, nil
}

// memberConfig parses an untrusted kubeconfig. It must be self-contained: programs would run, and files would be read, on
// the hub.
func memberConfig(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("it is empty, or not under the key %q", kubeconfigKey)
	}
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	for _, user := range config.AuthInfos {
		switch {
		case user.Exec != nil || user.AuthProvider != nil:
			return nil, errors.New("it runs a program to log in; use one with a token or a certificate")
		case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
			return nil, errors.New("it names files of the user; use one that holds the credentials themselves")
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return nil, errors.New("it names a file of the certificate authority; use one that holds the certificate itself")
		}
	}
	return clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
}
