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

// Remotes gives access to the other control planes. A template and its dependencies have different names and
// hence often live in different cells. ServiceAccounts and cluster-scoped objects live on the hub.
//
// An engine does not read dependencies in other control planes. It creates a binding for the name, and the engine
// that holds the object propagates it while it exists. So an engine needs access to bindings only, and never reads
// the Secrets of another cell.
type Remotes struct {
	cells, hub *remote
}

// Rules returns the permissions that an engine needs in the other control planes. Read access to other kinds than
// bindings serves references by label; it excludes Secrets.
func Rules() []rbacv1.PolicyRule {
	read := []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{workv1alpha2.GroupVersion.Group}, Resources: []string{"resourcebindings", "clusterresourcebindings"}, Verbs: append(slices.Clone(read), "create", "update", "delete")},
		{APIGroups: []string{""}, Resources: []string{"configmaps", "services", "persistentvolumeclaims", "serviceaccounts", "podtemplates"}, Verbs: read},
		{APIGroups: []string{"apps", "batch", "autoscaling", "networking.k8s.io", "policy"}, Resources: []string{"*"}, Verbs: read},
	}
}

// NewRemotes returns access to the other control planes of a cell. Federation is the gateway's template-only API,
// which routes each object to its cell, also during a topology change. Hub is the hub itself, nil for the hub's own
// engine.
func NewRemotes(name string, federation, hub *rest.Config) (*Remotes, error) {
	e := &Remotes{}
	var err error
	if e.cells, err = newRemote("the other cells", name, federation); err != nil {
		return nil, err
	}
	if hub != nil {
		if e.hub, err = newRemote("the hub", name, hub); err != nil {
			return nil, err
		}
		e.hub.clusterScoped = true
	}
	return e, nil
}

// watch watches the bindings that this cell attached in other control planes until the context ends. It calls lost
// for each deleted one.
func (e *Remotes) watch(ctx context.Context, lost func(*workv1alpha2.ResourceBinding)) {
	if e == nil {
		return
	}
	for _, p := range e.remotes() {
		p.watch(ctx, lost)
	}
}

func (e *Remotes) remotes() []*remote {
	if e == nil {
		return nil
	}
	if e.hub == nil {
		return []*remote{e.cells}
	}
	return []*remote{e.cells, e.hub}
}

// of returns the control plane of an object, or nil if it is this cell.
func (e *Remotes) of(kind *cell.Kind, namespace string) *remote {
	switch {
	case e == nil:
		return nil
	case kind == nil && namespace != "":
		return nil // the kind is not served
	case kind == nil || !kind.Namespaced || placement.InNamespace(kind.GVR().GroupResource(), namespace) == placement.OnHub:
		return e.hub
	default:
		return e.cells
	}
}

// remote is a control plane, or several behind the gateway, in which this cell attaches bindings.
type remote struct {
	name          string
	label         string
	clusterScoped bool
	client        *cell.BindingClient
	metadata      metadata.Interface
	known         *attachments
}

func newRemote(name, cellName string, config *rest.Config) (*remote, error) {
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
	return &remote{name: name, label: names.DependedFromLabelPrefix + cellName, client: client, metadata: objects, known: newAttachments()}, nil
}

func (p *remote) watch(ctx context.Context, lost func(*workv1alpha2.ResourceBinding)) {
	p.known.lost = lost
	failed := func(err error) {
		klog.FromContext(ctx).Info("cannot watch attached bindings, retrying", "where", p.name, "err", err)
	}
	go fleet.Watch(ctx, p.client.Labelled(p.label), p.known.sink(false), fleet.EachReason(failed))
	if p.clusterScoped {
		go fleet.Watch(ctx, p.client.ClusterLabelled(p.label), p.known.sink(true), fleet.EachReason(failed))
	} else {
		p.known.sink(true).Relist()("")
	}
}

func (p *remote) binding(ctx context.Context, key cell.Key) (*workv1alpha2.ResourceBinding, error) {
	return p.client.Get(ctx, key)
}

func (p *remote) create(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := p.client.Create(ctx, binding)
	return err
}

func (p *remote) update(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	_, err := p.client.Update(ctx, binding)
	return err
}

// remove deletes a binding unless it changed: another cell may depend on it now.
func (p *remote) remove(ctx context.Context, binding *workv1alpha2.ResourceBinding) error {
	return p.client.Delete(ctx, binding, &metav1.Preconditions{UID: &binding.UID, ResourceVersion: &binding.ResourceVersion})
}

func (p *remote) attached(label string) ([]*workv1alpha2.ResourceBinding, bool) {
	return p.known.labelled(label)
}

func (p *remote) mark() string { return p.label }

// templates returns the objects of a kind and namespace with matching labels, except for those being deleted.
func (p *remote) templates(ctx context.Context, kind *cell.Kind, namespace string, selector labels.Selector) ([]*dependency, error) {
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

func (p *remote) named(key cell.TemplateKey) *dependency { return &dependency{TemplateKey: key, in: p} }

// dependedBy returns the labels of an attached binding that identify its dependents.
func dependedBy(binding *workv1alpha2.ResourceBinding) []string {
	var found []string
	for label := range binding.Labels {
		if strings.HasPrefix(label, names.DependedByLabelPrefix) {
			found = append(found, label)
		}
	}
	return found
}
