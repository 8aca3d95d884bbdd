package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// cellManifest are the flags that say how a cell is reached.
type cellManifest struct {
	server, serverName        string
	ca, cert, key             string
	etcd                      []string
	etcdCA, etcdCert, etcdKey string
	etcdPrefix                string
}

func (m *cellManifest) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.server, "server", "", "https URL of the cell's API server")
	flags.StringVar(&m.serverName, "server-name", "", "name in its certificate, if it differs from the URL's host")
	flags.StringVar(&m.ca, "ca-file", "", "certificates that vouch for the API server")
	flags.StringVar(&m.cert, "client-cert-file", "", "certificate of the authenticating proxy that the API server trusts")
	flags.StringVar(&m.key, "client-key-file", "", "key of that certificate")
	flags.StringSliceVar(&m.etcd, "etcd", nil, "https URLs of the cell's etcd")
	flags.StringVar(&m.etcdCA, "etcd-ca-file", "", "certificates that vouch for the etcd")
	flags.StringVar(&m.etcdCert, "etcd-cert-file", "", "client certificate for the etcd")
	flags.StringVar(&m.etcdKey, "etcd-key-file", "", "key of that certificate")
	flags.StringVar(&m.etcdPrefix, "etcd-prefix", "/registry", "where the API server keeps its objects in the etcd")
}

func (m *cellManifest) given() bool { return m.server != "" || len(m.etcd) > 0 }

func (m *cellManifest) validate() error {
	for flag, value := range map[string]string{
		"server": m.server, "ca-file": m.ca, "client-cert-file": m.cert, "client-key-file": m.key,
		"etcd-ca-file": m.etcdCA, "etcd-cert-file": m.etcdCert, "etcd-key-file": m.etcdKey,
	} {
		if value == "" {
			return fmt.Errorf("--%s is missing: a cell needs its API server and its etcd, with certificates for both", flag)
		}
	}
	if len(m.etcd) == 0 {
		return errors.New("--etcd is missing: a cell needs its API server and its etcd, with certificates for both")
	}
	return nil
}

// apply writes the Cell and the Secrets it refers to.
func (m *cellManifest) apply(ctx context.Context, hub hubFlags, name string, weight int32) error {
	if err := m.validate(); err != nil {
		return err
	}
	writer, err := hub.client()
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(m.ca)
	if err != nil {
		return err
	}
	credentials, err := writeTLS(ctx, writer, name+"-credentials", m.ca, m.cert, m.key)
	if err != nil {
		return err
	}
	etcd, err := writeTLS(ctx, writer, name+"-etcd", m.etcdCA, m.etcdCert, m.etcdKey)
	if err != nil {
		return err
	}
	cell := &v1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = controllerutil.CreateOrUpdate(ctx, writer, cell, func() error {
		cell.Spec.Endpoint = v1alpha1.CellEndpoint{Server: m.server, ServerName: m.serverName, CABundle: ca}
		cell.Spec.Credentials.SecretRef = credentials
		cell.Spec.Etcd.Endpoints, cell.Spec.Etcd.SecretRef, cell.Spec.Etcd.Prefix = m.etcd, etcd, m.etcdPrefix
		cell.Spec.Weight = weight
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the Cell %s: %w", name, err)
	}
	return nil
}

func writeTLS(ctx context.Context, writer client.Client, name, ca, cert, key string) (v1alpha1.SecretReference, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
	data := map[string][]byte{}
	for entry, file := range map[string]string{corev1.ServiceAccountRootCAKey: ca, corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key} {
		content, err := os.ReadFile(file)
		if err != nil {
			return v1alpha1.SecretReference{}, err
		}
		data[entry] = content
	}
	_, err := controllerutil.CreateOrUpdate(ctx, writer, secret, func() error {
		secret.Type, secret.Data = corev1.SecretTypeTLS, data
		return nil
	})
	if err != nil {
		return v1alpha1.SecretReference{}, fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return v1alpha1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, nil
}
