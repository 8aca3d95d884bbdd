package federate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/internal/pki"
)

// caKey is the key of the CA in Secrets, as cert-manager has it.
const caKey = "ca.crt"

// issuer issues certificates as Secrets.
type issuer struct {
	*Config
	cluster     kubernetes.Interface
	authorities map[string]*authority
}

type authority struct {
	*pki.Authority
	cert []byte
}

// issue writes what is missing or expires soon. Authorities are never replaced: what they have issued would no longer be trusted.
func (i *issuer) issue(ctx context.Context) error {
	i.authorities = map[string]*authority{}
	for _, name := range i.Authorities {
		authority, err := i.authority(ctx, name)
		if err != nil {
			return fmt.Errorf("the certificate authority in Secret %s: %w", name, err)
		}
		i.authorities[name] = authority
	}
	for _, certificate := range i.Certificates {
		if err := i.certificate(ctx, certificate); err != nil {
			return fmt.Errorf("the certificate in Secret %s: %w", certificate.Secret, err)
		}
	}
	return nil
}

// authority reads a certificate authority, or creates it. Whoever creates it first wins.
func (i *issuer) authority(ctx context.Context, name string) (*authority, error) {
	secrets := i.cluster.CoreV1().Secrets(i.Namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		var pair pki.Keypair
		if pair, err = pki.NewAuthority("cellplane " + name); err != nil {
			return nil, err
		}
		secret, err = secrets.Create(ctx, i.secret(name, pair.Cert, pair), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			secret, err = secrets.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, err
	}
	loaded, err := pki.LoadAuthority(keypair(secret))
	if err != nil {
		return nil, err
	}
	return &authority{Authority: loaded, cert: secret.Data[corev1.TLSCertKey]}, nil
}

// certificate keeps a certificate that is good, and otherwise replaces it.
func (i *issuer) certificate(ctx context.Context, want Certificate) error {
	by := i.authorities[want.Authority]
	if by == nil {
		return fmt.Errorf("there is no certificate authority %s", want.Authority)
	}
	leaf := pki.Leaf{CommonName: want.CommonName, Organizations: want.Organizations, Hosts: want.Hosts, Peer: want.Client}
	secrets := i.cluster.CoreV1().Secrets(i.Namespace)
	present, err := secrets.Get(ctx, want.Secret, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return err
	case !missing && by.Good(keypair(present), leaf):
		return nil
	}
	pair, err := by.Issue(leaf)
	if err != nil {
		return err
	}
	next := i.secret(want.Secret, by.cert, pair)
	if missing {
		if _, err = secrets.Create(ctx, next, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil // another run was faster
		}
		return err
	}
	present.Data = next.Data
	if _, err = secrets.Update(ctx, present, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
		return nil // another run was faster
	}
	return err
}

func (i *issuer) secret(name string, ca []byte, pair pki.Keypair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: i.Namespace, Labels: i.Labels},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{caKey: ca, corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key},
	}
}

func keypair(secret *corev1.Secret) pki.Keypair {
	return pki.Keypair{Cert: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}
