package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
)

// NewClient returns a client that knows the kinds of Kubernetes and of Cellplane.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// TLS is a client certificate with its key, and the CA of the server, as PEM.
type TLS struct{ CA, Cert, Key []byte }

// Cell is how a cell is reached.
type Cell struct {
	Name string
	// Server is the URL of its API servers, of which there are APIServers; 0 means one.
	Server     string
	APIServers int32
	// FrontProxy is the certificate with which gateways forward requests.
	FrontProxy TLS
	// Etcd are the URLs of its store.
	Etcd       []string
	EtcdClient TLS
}

// CreateNamespaces creates the namespaces of the control plane on the hub.
func CreateNamespaces(ctx context.Context, hub client.Client) error {
	for _, name := range []string{names.SystemNamespace, names.ClusterNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := hub.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// RegisterCell writes a Cell and the Secrets it refers to.
func RegisterCell(ctx context.Context, hub client.Client, cell Cell) error {
	if err := registerCell(ctx, hub, cell); err != nil {
		return fmt.Errorf("registering %s: %w", cell.Name, err)
	}
	return nil
}

// UnregisterCell removes a Cell, the Secrets it refers to, and the rights of its engine on the hub. The hub refuses that while the topology has the cell.
func UnregisterCell(ctx context.Context, hub client.Client, name string) error {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	for _, object := range []client.Object{
		&cellplanev1alpha1.Cell{ObjectMeta: meta("", name)},
		&corev1.Secret{ObjectMeta: meta(names.SystemNamespace, credentialsSecret(name))},
		&corev1.Secret{ObjectMeta: meta(names.SystemNamespace, etcdSecret(name))},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", names.EngineUser(name))},
	} {
		if err := hub.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing %s from the hub: %w", name, err)
		}
	}
	return nil
}

func credentialsSecret(cell string) string { return cell + "-credentials" }

func etcdSecret(cell string) string { return cell + "-etcd" }

func registerCell(ctx context.Context, hub client.Client, cell Cell) error {
	credentials, err := writeTLSSecret(ctx, hub, credentialsSecret(cell.Name), cell.FrontProxy)
	if err != nil {
		return err
	}
	etcd, err := writeTLSSecret(ctx, hub, etcdSecret(cell.Name), cell.EtcdClient)
	if err != nil {
		return err
	}
	object := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}}
	_, err = controllerutil.CreateOrUpdate(ctx, hub, object, func() error {
		object.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: cell.Server, CABundle: cell.FrontProxy.CA, APIServers: cell.APIServers}
		object.Spec.Credentials.SecretRef = credentials
		object.Spec.Etcd.Endpoints = cell.Etcd
		object.Spec.Etcd.SecretRef = etcd
		return nil
	})
	return err
}

func writeTLSSecret(ctx context.Context, hub client.Client, name string, content TLS) (cellplanev1alpha1.SecretReference, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, hub, secret, func() error {
		secret.Type = corev1.SecretTypeTLS
		secret.Data = map[string][]byte{"ca.crt": content.CA, corev1.TLSCertKey: content.Cert, corev1.TLSPrivateKeyKey: content.Key}
		return nil
	})
	return cellplanev1alpha1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, err
}

// CreateTopology creates a topology with all cells in the state Normal. An existing one belongs to the operator.
func CreateTopology(ctx context.Context, hub client.Client, cellNames []string) error {
	if len(cellNames) == 0 {
		return nil
	}
	first, err := cells.First(cellNames...)
	if err != nil {
		return err
	}
	topology := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}, Spec: first}
	if err := hub.Create(ctx, topology); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the topology: %w", err)
	}
	return nil
}
