package cell

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/rollout/revisions"
)

// Revision is a stored revision of a workload, condensed. It is no template.
type Revision struct {
	revisions.Record
	Key
	Kind *Kind
	UID  types.UID
	// Of is the workload, and OwnerUID its UID. Both are empty if the revision was orphaned.
	Of       TemplateKey
	OwnerUID types.UID
	Deleting bool
	// Frozen is set while the revision belongs, or is about to belong, to another cell.
	Frozen bool
}

// Revisions caches the revisions of workloads.
type Revisions struct {
	cell   *Cell
	stores map[schema.GroupVersionKind]*Store[Revision]
}

func newRevisions(c *Cell) *Revisions {
	r := &Revisions{cell: c, stores: map[schema.GroupVersionKind]*Store[Revision]{}}
	for _, kind := range []*Kind{
		{GroupVersionKind: revisions.ReplicaSet, Resource: "replicasets", Namespaced: true},
		{GroupVersionKind: revisions.ControllerRevision, Resource: "controllerrevisions", Namespaced: true},
	} {
		r.stores[kind.GroupVersionKind] = newStore(condenseRevision(kind), func(revision *Revision) []string { return []string{revision.Of.String()} })
	}
	return r
}

// revisionsByOwner is the index of revisions.
const revisionsByOwner = 0

// isRevision reports whether an object is a revision of a workload, by its kind and labels.
func isRevision(kind schema.GroupVersionKind, labels map[string]string) bool {
	return labels[names.RevisionOfLabel] != "" && (kind == revisions.ReplicaSet || kind == revisions.ControllerRevision)
}

// divided divides the objects of a kind into templates and revisions.
type divided struct {
	templates sink
	revisions *Store[Revision]
	kind      *Kind
}

// Set stores an object where it belongs. Another store may have it from before its labels were changed.
func (d *divided) Set(obj runtime.Object) {
	for _, store := range d.stores(obj) {
		store.Set(obj)
	}
}

// Unset removes an object.
func (d *divided) Unset(obj runtime.Object) {
	for _, store := range d.stores(obj) {
		store.Unset(obj)
	}
}

// Relist lists into both stores.
func (d *divided) Relist() func(resourceVersion string) {
	templates, revisions := d.templates.Relist(), d.revisions.Relist()
	return func(resourceVersion string) {
		revisions(resourceVersion) // first, so that a kind whose templates are known has its revisions too
		templates(resourceVersion)
	}
}

func (d *divided) knows(namespace, name, resourceVersion string) bool {
	return d.templates.knows(namespace, name, resourceVersion) || d.revisions.knows(namespace, name, resourceVersion)
}

// stores returns the stores that an object concerns.
func (d *divided) stores(obj runtime.Object) []sink {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	var stores []sink
	is := isRevision(d.kind.GroupVersionKind, m.GetLabels())
	if !is || d.templates.knows(m.GetNamespace(), m.GetName(), "") {
		stores = append(stores, d.templates)
	}
	if is || d.revisions.knows(m.GetNamespace(), m.GetName(), "") {
		stores = append(stores, d.revisions)
	}
	return stores
}

func condenseRevision(kind *Kind) func(runtime.Object, *Revision) *Revision {
	return func(from runtime.Object, _ *Revision) *Revision {
		obj, ok := from.(*unstructured.Unstructured)
		if !ok || !isRevision(kind.GroupVersionKind, obj.GetLabels()) {
			return nil
		}
		obj.SetGroupVersionKind(kind.GroupVersionKind) // items of a list need not have it
		revision := &Revision{
			Record: revisions.Read(obj), Key: sharedKey(keyOf(obj)), Kind: kind, UID: obj.GetUID(),
			Deleting: obj.GetDeletionTimestamp() != nil, Frozen: obj.GetLabels()[names.RebalanceStatusLabel] != "",
		}
		if owner := metav1.GetControllerOf(obj); owner != nil {
			gv, err := schema.ParseGroupVersion(owner.APIVersion)
			if of, has := revisions.KindOf(gv.WithKind(owner.Kind)); err == nil && has && of == kind.GroupVersionKind {
				revision.Of = TemplateKey{GroupVersionKind: sharedKind(gv.WithKind(owner.Kind)), Key: sharedKey(Key{Namespace: obj.GetNamespace(), Name: owner.Name})}
				revision.OwnerUID = types.UID(Shared(string(owner.UID)))
			}
		}
		return revision
	}
}

// Subscribe registers a function that is called after every change of a revision. It must be quick. Subscribe before the cell is started.
func (r *Revisions) Subscribe(f func(old, now *Revision)) {
	for _, store := range r.stores {
		store.Subscribe(func(_ Key, old, now *Revision) { f(old, now) })
	}
}

// Of returns the revisions of a workload, and of earlier ones of its name.
func (r *Revisions) Of(workload TemplateKey) []*Revision {
	kind, has := revisions.KindOf(workload.GroupVersionKind)
	if !has {
		return nil
	}
	store := r.stores[kind]
	var found []*Revision
	for _, key := range store.indexed(revisionsByOwner, workload.String()) {
		if revision := store.Get(key); revision != nil {
			found = append(found, revision)
		}
	}
	return found
}

// Get returns a revision by its own kind and name, nil if there is none.
func (r *Revisions) Get(key TemplateKey) *Revision {
	if store := r.stores[key.GroupVersionKind]; store != nil {
		return store.Get(key.Key)
	}
	return nil
}

// List reads the revisions of a workload from the API server. Call it before creating one: that of a workload that has just moved here may not be cached yet.
func (r *Revisions) List(ctx context.Context, workload *unstructured.Unstructured) ([]*Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	kind, _ := revisions.KindOf(workload.GroupVersionKind())
	selector := labels.Set{names.RevisionOfLabel: string(workload.GetUID())}.String()
	list, err := r.client(kind, workload.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the revisions of %s %s/%s: %w", workload.GetKind(), workload.GetNamespace(), workload.GetName(), err)
	}
	var found []*Revision
	for i := range list.Items {
		r.stores[kind].Set(&list.Items[i])
		if revision := r.stores[kind].Get(keyOf(&list.Items[i])); revision != nil && revision.OwnerUID == workload.GetUID() {
			found = append(found, revision)
		}
	}
	return found, nil
}

// Read reads a stored revision from the API server.
func (r *Revisions) Read(ctx context.Context, revision *Revision) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stored, err := r.client(revision.Kind.GroupVersionKind, revision.Namespace).Get(ctx, revision.Name, metav1.GetOptions{})
	if err == nil && stored.GetUID() != revision.UID {
		err = apierrors.NewNotFound(schema.GroupResource{Group: revision.Kind.Group, Resource: revision.Kind.Resource}, revision.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the revision %s: %w", revision.Key, err)
	}
	return stored, nil
}

// Create stores a revision.
func (r *Revisions) Create(ctx context.Context, revision *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := r.client(revision.GroupVersionKind(), revision.GetNamespace()).Create(ctx, revision, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("creating the revision %s/%s: %w", revision.GetNamespace(), revision.GetName(), err)
	}
	r.stores[revision.GroupVersionKind()].Set(answer)
	return nil
}

// Update changes a stored revision, unless somebody else changes it meanwhile.
func (r *Revisions) Update(ctx context.Context, revision *Revision, change func(*unstructured.Unstructured)) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := r.client(revision.Kind.GroupVersionKind, revision.Namespace)
	stored, err := client.Get(ctx, revision.Name, metav1.GetOptions{})
	if err == nil && stored.GetUID() == revision.UID {
		change(stored)
		if stored, err = client.Update(ctx, stored, metav1.UpdateOptions{FieldManager: FieldManager}); err == nil {
			r.stores[revision.Kind.GroupVersionKind].Set(stored)
		}
	}
	if err != nil {
		return fmt.Errorf("updating the revision %s: %w", revision.Key, err)
	}
	return nil
}

// Delete deletes a stored revision.
func (r *Revisions) Delete(ctx context.Context, revision *Revision) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := r.client(revision.Kind.GroupVersionKind, revision.Namespace).Delete(ctx, revision.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &revision.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the revision %s: %w", revision.Key, err)
	}
	r.stores[revision.Kind.GroupVersionKind].forget(revision.Key, revision)
	return nil
}

func (r *Revisions) client(kind schema.GroupVersionKind, namespace string) dynamic.ResourceInterface {
	resource := "replicasets"
	if kind == revisions.ControllerRevision {
		resource = "controllerrevisions"
	}
	return r.cell.objects.Resource(kind.GroupVersion().WithResource(resource)).Namespace(namespace)
}
