// Package namespaces creates every namespace of the federation in every member, before the objects in it.
package namespaces

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/override"
	"github.com/cellplane/cellplane/internal/slots"
)

// Controller writes the Works of namespaces.
type Controller struct {
	cell      *cell.Cell
	overrides func() *override.Set
	skip      []*regexp.Regexp
	queue     *queue.Queue[string]
}

// New returns a controller that watches the hub. Namespaces that match an expression are skipped, in addition to those
// of the control plane.
func New(c *cell.Cell, overrides func() *override.Set, skip []*regexp.Regexp) *Controller {
	n := &Controller{cell: c, overrides: overrides, skip: skip, queue: queue.New[string]("namespaces")}
	c.Namespaces.Subscribe(func(key cell.Key, old, now *metav1.PartialObjectMetadata) {
		if old != nil && now != nil && maps.Equal(old.Labels, now.Labels) && maps.Equal(old.Annotations, now.Annotations) &&
			(old.DeletionTimestamp == nil) == (now.DeletionTimestamp == nil) {
			return
		}
		n.queue.AddNow(key.Name)
	})
	c.Clusters.Subscribe(func(_ cell.Key, old, now *clusterv1alpha1.Cluster) {
		if old == nil || now == nil || !maps.Equal(old.Labels, now.Labels) || (old.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) {
			n.enqueueAll()
		}
	})
	c.ClusterOverridePolicies.Subscribe(func(cell.Key, *policyv1alpha1.ClusterOverridePolicy, *policyv1alpha1.ClusterOverridePolicy) {
		n.enqueueAll()
	})
	c.Works.Subscribe(func(_ cell.Key, old, now *cell.Work) {
		switch {
		case now == nil && isNamespace(old):
			n.queue.Add(old.Objects[0].Name)
		case old == nil && isNamespace(now) && c.Namespaces.Get(cell.Key{Name: now.Objects[0].Name}) == nil:
			n.queue.Add(now.Objects[0].Name) // it has gone while no engine was running
		}
	})
	return n
}

func isNamespace(work *cell.Work) bool {
	return len(work.Objects) == 1 && work.Objects[0].Kind == "Namespace" && work.Objects[0].Group == ""
}

func (n *Controller) enqueueAll() {
	for _, key := range n.cell.Namespaces.Keys() {
		n.queue.Add(key.Name)
	}
}

// Run reconciles until the context ends.
func (n *Controller) Run(ctx context.Context, workers int) { n.queue.Run(ctx, workers, n.Reconcile) }

// Reconcile creates, updates or deletes the Works of a namespace.
func (n *Controller) Reconcile(ctx context.Context, name string) error {
	namespace := n.cell.Namespaces.Get(cell.Key{Name: name})
	switch {
	case namespace == nil:
		return n.remove(ctx, name)
	case namespace.DeletionTimestamp != nil:
		return nil // members delete all that is in theirs. First it is removed as its Works say: what is open waits, and so does the namespace.
	case !n.propagated(namespace):
		return n.remove(ctx, name)
	}
	var errs []error
	for _, cluster := range n.cell.Clusters.All() {
		if cluster.DeletionTimestamp == nil {
			errs = append(errs, n.write(ctx, namespace, cluster))
		}
	}
	return errors.Join(errs...)
}

// propagated reports whether a namespace is created in members.
func (n *Controller) propagated(namespace *metav1.PartialObjectMetadata) bool {
	if names.IsReservedNamespace(namespace.Name) || namespace.Labels[names.SkipAutoPropagationLabel] == "true" {
		return false
	}
	return !slices.ContainsFunc(n.skip, func(skip *regexp.Regexp) bool { return skip.MatchString(namespace.Name) })
}

// write creates or updates the Work of a namespace for one cluster.
func (n *Controller) write(ctx context.Context, namespace *metav1.PartialObjectMetadata, cluster *clusterv1alpha1.Cluster) error {
	key := workKey(cluster.Name, namespace.Name)
	now := n.cell.Works.Get(key)
	if now != nil && now.Deleting {
		return nil // its deletion enqueues the namespace
	}
	id := uuid.NewString()
	if now != nil && now.ID != "" {
		id = now.ID
	}
	manifest, trace, err := n.overrides().Apply(manifestOf(namespace), cluster)
	if err != nil {
		return err
	}
	stamped := merge.Stamp(manifest, merge.Marks{
		WorkNamespace: key.Namespace, WorkName: key.Name, WorkID: id, TemplateUID: namespace.UID, Cell: n.cell.Name,
	})
	raw, err := stamped.MarshalJSON()
	if err != nil {
		return err
	}
	work := &workv1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Finalizers: []string{names.ExecutionFinalizer},
			Labels:      map[string]string{names.WorkPermanentIDLabel: id, names.SlotLabel: slots.Of("", namespace.Name).String()},
			Annotations: trace.Annotations(),
		},
		Spec: workv1alpha1.WorkSpec{Workload: workv1alpha1.WorkloadTemplate{Manifests: []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}}},
	}
	if now == nil {
		if err := n.cell.EnsureNamespace(ctx, key.Namespace); err != nil {
			return err
		}
		_, err = n.cell.CreateWork(ctx, work)
		return err
	}
	if now.Digest == cell.WorkDigest(work.Labels, work.Annotations, false, nil, []cell.Object{cell.DescribeManifest(stamped)}) {
		return nil
	}
	_, err = n.cell.UpdateWork(ctx, now, work)
	return err
}

func workKey(cluster, namespace string) cell.Key {
	return cell.Key{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName("Namespace", "", namespace)}
}

func manifestOf(namespace *metav1.PartialObjectMetadata) *unstructured.Unstructured {
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetAPIVersion("v1")
	manifest.SetKind("Namespace")
	manifest.SetName(namespace.Name)
	manifest.SetLabels(namespace.Labels)
	manifest.SetAnnotations(namespace.Annotations)
	return manifest
}

// remove deletes the Works of a namespace.
func (n *Controller) remove(ctx context.Context, name string) error {
	var errs []error
	for _, cluster := range n.cell.Clusters.All() {
		if work := n.cell.Works.Get(workKey(cluster.Name, name)); work != nil && !work.Deleting && !work.Frozen {
			errs = append(errs, n.cell.DeleteWork(ctx, work))
		}
	}
	return errors.Join(errs...)
}
