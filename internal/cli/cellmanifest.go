package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/atrest"
)

// cellManifest are the flags with the addresses and credentials of a cell.
type cellManifest struct {
	kubeconfig                string
	server, serverName        string
	apiServers                int32
	ca, cert, key             string
	etcd                      []string
	etcdCA, etcdCert, etcdKey string
	etcdPrefix                string
	encryption                string
}

func (m *cellManifest) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&m.kubeconfig, "cell-kubeconfig", "", "kubeconfig of the cell with the front-proxy certificate; replaces --server, --ca-file, --client-cert-file and --client-key-file")
	flags.StringVar(&m.server, "server", "", "https URL of the API server of the cell")
	flags.Int32Var(&m.apiServers, "api-servers", 0, "number of API servers behind the URL, if there are several")
	flags.StringVar(&m.serverName, "server-name", "", "name in the certificate of the API server, if it differs from the host of the URL")
	flags.StringVar(&m.ca, "ca-file", "", "CA certificates of the API server")
	flags.StringVar(&m.cert, "client-cert-file", "", "front-proxy client certificate that the API server trusts")
	flags.StringVar(&m.key, "client-key-file", "", "key of the front-proxy client certificate")
	flags.StringSliceVar(&m.etcd, "etcd", nil, "https URLs of the etcd of the cell")
	flags.StringVar(&m.etcdCA, "etcd-ca-file", "", "CA certificates of the etcd")
	flags.StringVar(&m.etcdCert, "etcd-cert-file", "", "client certificate for the etcd")
	flags.StringVar(&m.etcdKey, "etcd-key-file", "", "key of the client certificate for the etcd")
	flags.StringVar(&m.etcdPrefix, "etcd-prefix", "/registry", "prefix of the objects in the etcd")
	flags.StringVar(&m.encryption, "encryption-config-file", "", "EncryptionConfiguration of the API servers of the cell, if they encrypt what they store")
}

func (m *cellManifest) given() bool { return m.kubeconfig != "" || m.server != "" || len(m.etcd) > 0 }

func (m *cellManifest) validate() error {
	if m.apiServers < 0 {
		return fmt.Errorf("--api-servers is %d; a cell has at least one API server", m.apiServers)
	}
	needed := map[string]string{"etcd-ca-file": m.etcdCA, "etcd-cert-file": m.etcdCert, "etcd-key-file": m.etcdKey, "etcd": strings.Join(m.etcd, "")}
	ofServer := map[string]string{"server": m.server, "ca-file": m.ca, "client-cert-file": m.cert, "client-key-file": m.key}
	if m.kubeconfig == "" {
		maps.Copy(needed, ofServer)
	}
	for _, flag := range slices.Sorted(maps.Keys(needed)) {
		if needed[flag] == "" {
			return fmt.Errorf("--%s is missing: a cell needs its API server and its etcd, with certificates for both", flag)
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(ofServer)) {
		if m.kubeconfig != "" && ofServer[flag] != "" {
			return fmt.Errorf("give either --cell-kubeconfig or --%s", flag)
		}
	}
	return nil
}

// apiServer returns the client configuration of the API server, with the content of the files.
func (m *cellManifest) apiServer() (*rest.Config, error) {
	config := &rest.Config{Host: m.server, TLSClientConfig: rest.TLSClientConfig{ServerName: m.serverName, CAFile: m.ca, CertFile: m.cert, KeyFile: m.key}}
	if m.kubeconfig != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", m.kubeconfig); err != nil {
			return nil, fmt.Errorf("reading --cell-kubeconfig: %w", err)
		}
		config.ServerName = cmp.Or(m.serverName, config.ServerName)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	if len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 {
		return nil, fmt.Errorf("%s lacks the CA of the API server or a client certificate; the gateway needs the front-proxy certificate of the cell", m.kubeconfig)
	}
	return config, nil
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
	server, err := m.apiServer()
	if err != nil {
		return err
	}
	store := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: m.etcdCA, CertFile: m.etcdCert, KeyFile: m.etcdKey}}
	if err := rest.LoadTLSFiles(store); err != nil {
		return err
	}
	encryption, err := m.readEncryption()
	if err != nil {
		return err
	}
	credentials, err := writeTLS(ctx, writer, name+"-credentials", server.TLSClientConfig)
	if err != nil {
		return err
	}
	etcd, err := writeTLS(ctx, writer, name+"-etcd", store.TLSClientConfig)
	if err != nil {
		return err
	}
	var keys v1alpha1.SecretReference
	if encryption != nil {
		if keys, err = writeEncryption(ctx, writer, name+"-encryption", encryption); err != nil {
			return err
		}
	}
	cell := &v1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = controllerutil.CreateOrUpdate(ctx, writer, cell, func() error {
		cell.Spec.Endpoint = v1alpha1.CellEndpoint{Server: server.Host, ServerName: server.ServerName, CABundle: server.CAData, APIServers: m.apiServers}
		cell.Spec.Credentials.SecretRef = credentials
		cell.Spec.Etcd.Endpoints, cell.Spec.Etcd.SecretRef, cell.Spec.Etcd.Prefix = m.etcd, etcd, m.etcdPrefix
		if encryption != nil {
			allowed := cell.Spec.Etcd.Encryption != nil && cell.Spec.Etcd.Encryption.AllowUnencryptedCopies
			cell.Spec.Etcd.Encryption = &v1alpha1.CellEncryption{SecretRef: keys, AllowUnencryptedCopies: allowed}
		}
		cell.Spec.Weight = weight
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the Cell %s: %w", name, err)
	}
	return nil
}

// readEncryption returns the EncryptionConfiguration; nil if none is given.
func (m *cellManifest) readEncryption() ([]byte, error) {
	if m.encryption == "" {
		return nil, nil
	}
	content, err := os.ReadFile(m.encryption)
	if err != nil {
		return nil, fmt.Errorf("reading --encryption-config-file: %w", err)
	}
	return content, atrest.Validate(m.encryption, content)
}

func writeEncryption(ctx context.Context, writer client.Client, name string, content []byte) (v1alpha1.SecretReference, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, writer, secret, func() error {
		secret.Data = map[string][]byte{atrest.ConfigKey: content}
		return nil
	})
	if err != nil {
		return v1alpha1.SecretReference{}, fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return v1alpha1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, nil
}

func writeTLS(ctx context.Context, writer client.Client, name string, of rest.TLSClientConfig) (v1alpha1.SecretReference, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
	data := map[string][]byte{corev1.ServiceAccountRootCAKey: of.CAData, corev1.TLSCertKey: of.CertData, corev1.TLSPrivateKeyKey: of.KeyData}
	_, err := controllerutil.CreateOrUpdate(ctx, writer, secret, func() error {
		secret.Type, secret.Data = corev1.SecretTypeTLS, data
		return nil
	})
	if err != nil {
		return v1alpha1.SecretReference{}, fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return v1alpha1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, nil
}
