package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

const (
	// orphanAge is the age of an object from which on it may be an orphan. Younger ones may be ahead of what they belong to.
	orphanAge = 5 * time.Minute
	// orphanLimit is how many objects of a kind are named in each control plane.
	orphanLimit = 20
	// orphanPage is how many objects are read at once.
	orphanPage = 1000
)

// checkOrphans looks for Works whose binding is gone, and for execution namespaces whose Cluster is. Only metadata is read.
func (d *Doctor) checkOrphans(ctx context.Context) ([]Finding, error) {
	bindings := map[string]bool{}
	for _, p := range d.planes {
		for _, kind := range []string{"ResourceBinding", "ClusterResourceBinding"} {
			if err := eachMetadata(ctx, p, workv1alpha2.GroupVersion.WithKind(kind), func(o *metav1.PartialObjectMetadata) {
				bindings[o.Namespace+"/"+o.Name] = true
			}); err != nil {
				return nil, err
			}
		}
	}
	clusters := map[string]bool{}
	for i := range d.clusters {
		clusters[d.clusters[i].Name] = true
	}
	var findings []Finding
	complete := len(d.planes) == len(d.cells)+1 && d.settled() // otherwise the binding may be in a cell that does not answer, or on its way
	for _, p := range d.planes {
		works := 0
		if err := eachMetadata(ctx, p, workv1alpha1.GroupVersion.WithKind("Work"), func(o *metav1.PartialObjectMetadata) {
			binding := bindingOf(o)
			if !complete || binding == "" || bindings[binding] || d.young(o) {
				return
			}
			if works++; works <= orphanLimit {
				findings = append(findings, find(OrphanedWork, Warning, fmt.Sprintf("Work %s/%s in %s", o.Namespace, o.Name, p.name), "there is no binding "+binding))
			}
		}); err != nil {
			return findings, err
		}
		if err := eachMetadata(ctx, p, corev1.SchemeGroupVersion.WithKind("Namespace"), func(o *metav1.PartialObjectMetadata) {
			if cluster, ok := names.ClusterFromExecutionNamespace(o.Name); ok && !clusters[cluster] && !d.young(o) {
				findings = append(findings, find(OrphanedNamespace, Warning, fmt.Sprintf("Namespace %s in %s", o.Name, p.name), "there is no Cluster "+cluster))
			}
		}); err != nil {
			return findings, err
		}
	}
	return findings, nil
}

// settled reports whether no workload is moving between cells.
func (d *Doctor) settled() bool {
	return !slices.ContainsFunc(d.topology.Spec.Cells, func(c cellplanev1alpha1.TopologyCell) bool {
		return c.State == cellplanev1alpha1.CellStateIn || c.State == cellplanev1alpha1.CellStateOut
	})
}

func (d *Doctor) young(o *metav1.PartialObjectMetadata) bool {
	return d.now().Sub(o.CreationTimestamp.Time) < orphanAge || !o.DeletionTimestamp.IsZero()
}

// bindingOf returns the binding that a Work names, as namespace/name; it is empty for a Work without one, such as that of a namespace.
func bindingOf(work *metav1.PartialObjectMetadata) string {
	if name := work.Annotations[names.ClusterResourceBindingNameAnnotation]; name != "" {
		return "/" + name
	}
	if name := work.Annotations[names.ResourceBindingNameAnnotation]; name != "" {
		return work.Annotations[names.ResourceBindingNamespaceAnnotation] + "/" + name
	}
	return ""
}

// eachMetadata calls a function for all objects of a kind.
func eachMetadata(ctx context.Context, p plane, kind schema.GroupVersionKind, visit func(*metav1.PartialObjectMetadata)) error {
	next := ""
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind)
		if err := p.client.List(ctx, page, client.Limit(orphanPage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing %ss in %s: %w", kind.Kind, p.name, err)
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
