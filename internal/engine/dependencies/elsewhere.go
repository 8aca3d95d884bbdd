package dependencies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/placement"
)

// Elsewhere is what a cell does not hold itself. A template and what it refers to have different names and hence often
// different cells; ServiceAccounts and what has no namespace are on the hub.
//
// An engine does not read what its templates refer to elsewhere: it writes a binding for it by name, and the engine
// that has the object takes it from there, when and as long as it exists. So it needs rights on bindings alone, and
// never sees another cell's Secrets.
type Elsewhere struct {
	cells, hub *place
}

// Rules are the rights that an engine needs elsewhere. Reading other kinds than bindings serves dependencies that are
// given by label; Secrets are not among them.
func Rules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{workv1alpha2.GroupVersion.Group}, Resources: []string{"resourcebindings", "clusterresourcebindings"}, Verbs: append(slices.Clone(read), "create", "update", "delete")},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "services", "persistentvolumeclaims", "serviceaccounts", "podtemplates"}, Verbs: read},
		{APIGroups: []string{"apps", "batch", "autoscaling", "networking.k8s.io", "policy"}, Resources: []string{"*"}, Verbs: read},
	}
}

// NewElsewhere returns what lies outside of a cell. Federation is the gateway's view of templates alone, which finds
// the cell of every object, also while cells change; hub is the hub itself, nil for the hub's own engine.
func NewElsewhere(name string, federation, hub *rest.Config) (*Elsewhere, error) {
	e := &Elsewhere{}
	var err error
	if e.cells, err = newPlace("the other cells", name, federation); err != nil {
		return nil, err
	}
	if hub != nil {
		if e.hub, err = newPlace("the hub", name, hub); err != nil {
			return nil, err
		}
		e.hub.clusterScoped = true
	}
	return e, nil
}

// follow keeps up with the bindings that this cell needs elsewhere until the context ends; lost is told of one that
// is gone.
func (e *Elsewhere) follow(ctx context.Context, lost func(*workv1alpha2.ResourceBinding)) {
	if e == nil {
		return
	}
	for _, p := range e.places() {
		p.follow(ctx, lost)
	}
}

func (e *Elsewhere) places() []*place {
	if e == nil {
		return nil
	}
	if e.hub == nil {
		return []*place{e.cells}
	}
	return []*place{e.cells, e.hub}
}

// of returns the place of an object that is not in this cell, nil if its place is this cell.
func (e *Elsewhere) of(kind *cell.Kind, namespace string) *place {
	switch {
	case e == nil:
		return nil
	case kind == nil && namespace != "":
		return nil // nobody serves it
	case kind == nil || !kind.Namespaced || placement.InNamespace(kind.GVR().GroupResource(), namespace) == placement.OnHub:
		return e.hub
	default:
		return e.cells
	}
}

// place is a control plane, or several behind a gateway, in which bindings of other cells are attached.
type place struct {
	name          string
	label         string
	clusterScoped bool
	client        *cell.BindingClient
	metadata      metadata.Interface
	known         *attachments
}

func newPlace(name, cellName string, config *rest.Config) (*place, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = rest.DefaultKubernetesUserAgent() + " cellplane-engine/" + cellName
	config.QPS, config.Burst = -1, 0
	client, err := cell.NewBindingClient(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	return &place{name: name, label: names.DependedFromLabelPrefix + cellName, client: client, metadata: objects, known: newAttachments()}, nil
}

func (p *place) follow(ctx context.Context, lost func(*workv1alpha2.ResourceBinding)) {
	p.known.lost = lost
	failed := func(err error) {
		klog.FromContext(ctx).Info("cannot follow the bindings that are needed elsewhere, trying again", "where", p.name, "err", err)
	}
	go fleet.Follow(ctx, p.client.Labelled(p.label), p.known.sink(false), failed)
	if p.clusterScoped {
		go fleet.Follow(ctx, p.client.ClusterLabelled(p.label), p.known.sink(true), failed)
	} else {
		p.known.sink(true).Relist()("")
	}
}

func (p *place) binding(ctx context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error) {
	return p.client.Get(ctx, key)
}

func (p *place) create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := p.client.Create(ctx, binding)
	return err
}

func (p *place) update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := p.client.Update(ctx, binding)
	return err
}

// remove deletes a binding unless it has changed since: another cell may have come to need it.
func (p *place) remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return p.client.Delete(ctx, binding, &metav1.Preconditions{UID: &binding.UID, ResourceVersion: &binding.ResourceVersion})
}

func (p *place) attached(label string) ([]*workv1alpha2.ResourceBinding, bool) {
	return p.known.labelled(label)
}

func (p *place) mark() string { return p.label }

// templates returns the objects of a kind and namespace with matching labels, those being deleted left out.
func (p *place) templates(ctx context.Context, kind *cell.Kind, namespace string, selector labels.Selector) ([]*dependency, error) {
	list, err := p.metadata.Resource(kind.GVR()).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("listing %s in %s: %w", kind.Resource, p.name, err)
	}
	var found []*dependency
	for i := range list.Items {
		if m := &list.Items[i]; m.DeletionTimestamp == nil {
			found = append(found, p.named(cell.TemplateKey{GroupVersionKind: kind.GroupVersionKind, Key: cell.Key{Namespace: m.Namespace, Name: m.Name}}))
		}
	}
	return found, nil
}

func (p *place) named(key cell.TemplateKey) *dependency { return &dependency{TemplateKey: key, in: p} }

// dependedBy returns the labels that name the bindings which need a binding.
func dependedBy(binding *workv1alpha2.ResourceBinding) []string {
	var found []string
	for label := range binding.Labels {
		if strings.HasPrefix(label, names.DependedByLabelPrefix) {
			found = append(found, label)
		}
	}
	return found
}
