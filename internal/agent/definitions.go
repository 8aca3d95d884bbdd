package agent

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
)

// definitions are the CustomResourceDefinitions of the member. It implements execution.Definitions and fleet.Sink.
type definitions struct {
	client apiextensions.CustomResourceDefinitionInterface

	mu     sync.Mutex
	kinds  map[schema.GroupKind]cell.DefinitionID
	listed map[schema.GroupKind]cell.DefinitionID // during a list
	synced chan struct{}
}

func newDefinitions(member *rest.Config) (*definitions, error) {
	client, err := apiextensions.NewForConfig(rest.AddUserAgent(rest.CopyConfig(member), program))
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &definitions{client: client.CustomResourceDefinitions(), kinds: map[schema.GroupKind]cell.DefinitionID{}, synced: make(chan struct{})}, nil
}

// start watches the definitions until the context ends. It returns when all are known.
func (d *definitions) start(ctx context.Context) error {
	source := fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return d.client.List(ctx, options)
		},
		Watch: d.client.Watch,
	}
	go fleet.Watch(ctx, source, d, func(err error) {
		klog.FromContext(ctx).Info("cannot watch the definitions of the cluster, retrying", "err", err)
	})
	select {
	case <-d.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// DefinitionOf implements execution.Definitions.
func (d *definitions) DefinitionOf(gvk schema.GroupVersionKind) (cell.DefinitionID, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, found := d.kinds[gvk.GroupKind()]
	return id, found
}

// ReadDefinition implements execution.Definitions.
func (d *definitions) ReadDefinition(ctx context.Context, id cell.DefinitionID) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition, err := d.client.Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the definition %s: %w", id.Name, err)
	}
	return definition, nil
}

// Set implements fleet.Sink.
func (d *definitions) Set(obj runtime.Object) {
	definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	id := cell.DefinitionID{Name: definition.Name, UID: definition.UID, Generation: definition.Generation}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kinds[kindOf(definition)] = id
	if d.listed != nil {
		d.listed[kindOf(definition)] = id
	}
}

// Unset implements fleet.Sink.
func (d *definitions) Unset(obj runtime.Object) {
	if definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.kinds, kindOf(definition))
	}
}

// Relist implements fleet.Sink.
func (d *definitions) Relist() func(string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = map[schema.GroupKind]cell.DefinitionID{}
	return func(string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.kinds, d.listed = d.listed, nil
		select {
		case <-d.synced:
		default:
			close(d.synced)
		}
	}
}

func kindOf(definition *apiextensionsv1.CustomResourceDefinition) schema.GroupKind {
	return schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}
}
