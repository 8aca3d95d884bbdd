package parts

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/pki"
)

// registerWithin bounds how long registering is repeated.
const registerWithin = 2 * time.Minute

// registerPatiently repeats register while servers are too slow to answer, as they may be on a busy machine right after their start.
func (p *Parts) registerPatiently(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, registerWithin, true, func(ctx context.Context) (bool, error) {
		last = p.register(ctx)
		if slow(last) {
			klog.FromContext(ctx).V(1).Info("registering cells and members again", "reason", last.Error())
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// slow reports whether an error says that a server did not answer in time, as an API server does when its etcd does not.
func slow(err error) bool {
	return fleet.Unreachable(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// register registers cells and members with the hub. It can be repeated.
func (p *Parts) register(ctx context.Context) error {
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	for _, name := range []string{names.SystemNamespace, names.ClusterNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := hub.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for _, cell := range p.federation.Cells {
		if err := registerCell(ctx, hub, cell); err != nil {
			return fmt.Errorf("registering %s: %w", cell.Name(), err)
		}
	}
	if err := createTopology(ctx, hub, p.cellNames()); err != nil {
		return fmt.Errorf("creating the topology: %w", err)
	}
	if err := p.join(ctx); err != nil {
		return err
	}
	return p.placeMembers(ctx, hub)
}

func (p *Parts) hubClient() (client.Client, error) {
	config, err := p.federation.Hub.AdminConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// registerCell writes a Cell and the Secrets it refers to.
func registerCell(ctx context.Context, hub client.Client, cell *controlplane.ControlPlane) error {
	frontProxy, err := cell.FrontProxy()
	if err != nil {
		return err
	}
	credentials, err := writeTLSSecret(ctx, hub, cell.Name()+"-credentials", cell.CAFile(), frontProxy)
	if err != nil {
		return err
	}
	etcdCA, etcdClient, err := cell.EtcdFiles()
	if err != nil {
		return err
	}
	etcd, err := writeTLSSecret(ctx, hub, cell.Name()+"-etcd", etcdCA, etcdClient)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(cell.CAFile())
	if err != nil {
		return err
	}
	object := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name()}}
	_, err = controllerutil.CreateOrUpdate(ctx, hub, object, func() error {
		object.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: cell.URL(), CABundle: ca}
		object.Spec.Credentials.SecretRef = credentials
		object.Spec.Etcd.Endpoints = []string{cell.EtcdURL()}
		object.Spec.Etcd.SecretRef = etcd
		return nil
	})
	return err
}

func writeTLSSecret(ctx context.Context, hub client.Client, name, caFile string, pair pki.Pair) (cellplanev1alpha1.SecretReference, error) {
	data := map[string][]byte{}
	for key, file := range map[string]string{"ca.crt": caFile, corev1.TLSCertKey: pair.CertFile, corev1.TLSPrivateKeyKey: pair.KeyFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			return cellplanev1alpha1.SecretReference{}, err
		}
		data[key] = content
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(ctx, hub, secret, func() error {
		secret.Type, secret.Data = corev1.SecretTypeTLS, data
		return nil
	})
	return cellplanev1alpha1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}, err
}

// createTopology creates a topology with all cells in the state Normal. An existing one belongs to the operator.
func createTopology(ctx context.Context, hub client.Client, cellNames []string) error {
	if len(cellNames) == 0 {
		return nil
	}
	first, err := cells.First(cellNames...)
	if err != nil {
		return err
	}
	topology := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}, Spec: first}
	if err := hub.Create(ctx, topology); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (p *Parts) cellNames() []string {
	var cells []string
	for _, cell := range p.federation.Cells {
		cells = append(cells, cell.Name())
	}
	return cells
}

// join adds all members to the federation.
func (p *Parts) join(ctx context.Context) error {
	hub, err := p.federation.Hub.AdminConfig()
	if err != nil {
		return err
	}
	for i, member := range p.federation.Members {
		if p.federation.Spec().Pulls(i) {
			if err := p.registerPulling(ctx, member); err != nil {
				return fmt.Errorf("joining %s: %w", member.Name(), err)
			}
			continue
		}
		config, err := member.AdminConfig()
		if err != nil {
			return err
		}
		if _, err := membership.Join(ctx, membership.Options{Hub: hub, Member: config, Name: member.Name(), Cells: p.cellNames()}); err != nil {
			return fmt.Errorf("joining %s: %w", member.Name(), err)
		}
	}
	return nil
}
