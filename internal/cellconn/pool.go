package cellconn

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/expiry"
	"github.com/cellplane/cellplane/internal/fence"
)

// Pool holds the connections to the cells of a hub.
type Pool struct {
	// Hub reads Cells and the metadata of Secrets. It may be cached.
	Hub client.Reader
	// Secrets reads Secrets uncached. They are read only when their metadata has changed.
	Secrets client.Reader
	// Scheme is that of the cells' clients.
	Scheme *runtime.Scheme

	mu   sync.Mutex
	open map[string]*Cell
}

// Get returns the connections to a cell. It opens none, and fails only if the Cell or its Secrets cannot be read: the methods of the
// result report what is wrong with them.
func (p *Pool) Get(ctx context.Context, name string) (*Cell, error) {
	var cell cellplanev1alpha1.Cell
	if err := p.Hub.Get(ctx, types.NamespacedName{Name: name}, &cell); err != nil {
		if apierrors.IsNotFound(err) {
			p.Remove(name)
		}
		return nil, fmt.Errorf("reading Cell %s: %w", name, err)
	}
	var apiSecret, storeSecret, encryption *corev1.Secret
	if known := p.known(name); known != nil {
		apiSecret, storeSecret, encryption = known.api.secret, known.store.secret, known.store.encryption
	}
	apiSecret, err := p.secret(ctx, cell.Spec.Credentials.SecretRef, apiSecret)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of cell %s: %w", name, err)
	}
	storeSecret, err = p.secret(ctx, cell.Spec.Etcd.SecretRef, storeSecret)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials for the store of cell %s: %w", name, err)
	}
	if given := cell.Spec.Etcd.Encryption; given == nil {
		encryption = nil
	} else if encryption, err = p.secret(ctx, given.SecretRef, encryption); err != nil {
		return nil, fmt.Errorf("reading the EncryptionConfiguration of cell %s: %w", name, err)
	}
	return p.put(&cell, apiSecret, storeSecret, encryption), nil
}

func (p *Pool) known(name string) *Cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[name]
}

// secret returns a Secret, which has no UID if there is none. It does not read one again whose metadata is unchanged.
func (p *Pool) secret(ctx context.Context, ref cellplanev1alpha1.SecretReference, known *corev1.Secret) (*corev1.Secret, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if known != nil && known.UID != "" && client.ObjectKeyFromObject(known) == key {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := p.Hub.Get(ctx, key, metadata)
		if err == nil && metadata.UID == known.UID && metadata.ResourceVersion == known.ResourceVersion {
			return known, nil
		}
	}
	secret := &corev1.Secret{}
	err := p.Secrets.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}, nil
	}
	return secret, err
}

// put returns the connections made from a Cell and its Secrets. It keeps those to which nothing has changed, and closes the others.
func (p *Pool) put(cell *cellplanev1alpha1.Cell, apiSecret, storeSecret, encryption *corev1.Secret) *Cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.open[cell.Name]
	next := &Cell{name: cell.Name}
	if known != nil && reflect.DeepEqual(known.api.cell.Spec.Endpoint, cell.Spec.Endpoint) && sameSecret(known.api.secret, apiSecret) {
		next.api = known.api
	} else {
		next.api = &apiServer{cell: cell, secret: apiSecret, scheme: p.Scheme}
	}
	if known != nil && reflect.DeepEqual(known.store.cell.Spec.Etcd, cell.Spec.Etcd) && sameSecret(known.store.secret, storeSecret) && sameSecret(known.store.encryption, encryption) {
		next.store = known.store
	} else {
		next.store = &store{cell: cell, secret: storeSecret, encryption: encryption, probe: p.probeOf(cell.Name)}
	}
	if known != nil {
		if next.api == known.api && next.store == known.store {
			return known
		}
		known.closeExcept(next)
	}
	if p.open == nil {
		p.open = map[string]*Cell{}
	}
	p.open[cell.Name] = next
	return next
}

// sameSecret reports whether two Secrets hold the same credentials.
func sameSecret(a, b *corev1.Secret) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Namespace == b.Namespace && a.Name == b.Name && (a.UID == "") == (b.UID == "") && reflect.DeepEqual(a.Data, b.Data)
}

// probeOf asks the API servers that the cell has when it is asked: their credentials may be renewed while the store stays open.
func (p *Pool) probeOf(name string) func(*cellstore.Store) atrest.Probe {
	return func(store *cellstore.Store) atrest.Probe {
		return func(ctx context.Context, resource schema.GroupResource) (string, []byte, error) {
			cell := p.known(name)
			if cell == nil {
				return "", nil, fmt.Errorf("cell %s: %w", name, errClosed)
			}
			return cell.Probe(store)(ctx, resource)
		}
	}
}

// Certificates returns those by which cells are reached.
func (p *Pool) Certificates() []expiry.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []expiry.Certificate
	for name, cell := range p.open {
		for purpose, secret := range map[string]*corev1.Secret{"cell-client": cell.api.secret, "cell-etcd-client": cell.store.secret} {
			if chain := secret.Data[corev1.TLSCertKey]; len(chain) > 0 { // otherwise the Cell is not ready, and says why
				all = append(all, expiry.Chain(purpose, "Cell "+name, chain))
			}
		}
	}
	return all
}

// Remove closes the connections to a cell that is gone.
func (p *Pool) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.open[name]; known != nil {
		known.closeExcept(&Cell{})
		delete(p.open, name)
	}
}

// Close closes all connections.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.open {
		known.closeExcept(&Cell{})
	}
	p.open = nil
}

// Fence is a shorthand for Get and Cell.Fence.
func (p *Pool) Fence(ctx context.Context, name string) (*fence.Cell, error) {
	cell, err := p.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return cell.Fence()
}

// Store is a shorthand for Get and Cell.Store.
func (p *Pool) Store(ctx context.Context, name string) (*cellstore.Store, error) {
	cell, err := p.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return cell.Store()
}
