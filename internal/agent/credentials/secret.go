package credentials

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/cellplane/cellplane/api/names"
)

// pendingKey is the key of the Secret under which the private key is kept while the certificate is requested.
const pendingKey = "agent.key"

// contextName is the name of the context, the cluster and the user in the kubeconfig.
const contextName = "karmada"

// Secret is the Secret of a member with the credentials of its agent.
type Secret struct {
	Member kubernetes.Interface
	// Namespace is where it is, names.SystemNamespace if empty.
	Namespace string
}

// Content is what the Secret holds.
type Content struct {
	// Cluster is the gateway.
	Cluster *clientcmdapi.Cluster
	// Certificate and Key are in PEM. While the certificate is requested, only the key is set.
	Certificate, Key []byte
}

func (s Secret) namespace() string {
	if s.Namespace == "" {
		return names.SystemNamespace
	}
	return s.Namespace
}

// String returns the namespace and name.
func (s Secret) String() string { return s.namespace() + "/" + names.AgentSecret }

// Read returns the content, nil if there is no Secret.
func (s Secret) Read(ctx context.Context) (*Content, error) {
	secret, err := s.Member.CoreV1().Secrets(s.namespace()).Get(ctx, names.AgentSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s of the member: %w", s, err)
	}
	text, found := secret.Data[names.AgentSecret]
	if !found {
		return &Content{Key: secret.Data[pendingKey]}, nil
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in Secret %s of the member: %w", s, err)
	}
	present := config.Contexts[config.CurrentContext]
	if present == nil || config.Clusters[present.Cluster] == nil || config.AuthInfos[present.AuthInfo] == nil {
		return nil, fmt.Errorf("the kubeconfig in Secret %s of the member has no current context", s)
	}
	user := config.AuthInfos[present.AuthInfo]
	return &Content{Cluster: config.Clusters[present.Cluster], Certificate: user.ClientCertificateData, Key: user.ClientKeyData}, nil
}

// WriteKey keeps a private key until its certificate is there. It creates the namespace if necessary.
func (s Secret) WriteKey(ctx context.Context, key []byte) error {
	_, err := s.Member.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace()}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s in the member: %w", s.namespace(), err)
	}
	return s.write(ctx, map[string][]byte{pendingKey: key})
}

// Write writes a kubeconfig with a certificate and its key.
func (s Secret) Write(ctx context.Context, content Content) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = content.Cluster
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{ClientCertificateData: content.Certificate, ClientKeyData: content.Key}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	config.CurrentContext = contextName
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return s.write(ctx, map[string][]byte{names.AgentSecret: text})
}

func (s Secret) write(ctx context.Context, data map[string][]byte) error {
	secrets := s.Member.CoreV1().Secrets(s.namespace())
	err := retry.OnError(retry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		present, err := secrets.Get(ctx, names.AgentSecret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = secrets.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: names.AgentSecret, Labels: map[string]string{names.SystemLabel: "true"}},
				Type:       corev1.SecretTypeOpaque,
				Data:       data,
			}, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		present.Data = data
		_, err = secrets.Update(ctx, present, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("writing Secret %s of the member: %w", s, err)
	}
	return nil
}

// Delete deletes the Secret, if it is there.
func (s Secret) Delete(ctx context.Context) error {
	err := s.Member.CoreV1().Secrets(s.namespace()).Delete(ctx, names.AgentSecret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Secret %s of the member: %w", s, err)
	}
	return nil
}

// Pair returns the certificate with its key.
func (c *Content) Pair() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the agent: %w", err)
	}
	return &pair, nil
}
