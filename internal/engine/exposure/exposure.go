// Package exposure reads which Services clusters offer to each other. MultiClusterServices, ServiceExports and ServiceImports have the name of the
// Service, so they are in its cell.
package exposure

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	multiclusterv1alpha1 "github.com/cellplane/cellplane/api/multicluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	networkingv1alpha1 "github.com/cellplane/cellplane/api/networking/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// The kinds that expose Services.
var (
	MultiClusterServiceKind = networkingv1alpha1.GroupVersion.WithKind("MultiClusterService")
	ServiceExportKind       = multiclusterv1alpha1.GroupVersion.WithKind("ServiceExport")
	ServiceImportKind       = multiclusterv1alpha1.GroupVersion.WithKind("ServiceImport")
)

// Kinds returns the kinds that expose Services.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{MultiClusterServiceKind, ServiceExportKind, ServiceImportKind}
}

// Known reports whether all objects that expose Services are cached.
func Known(c *cell.Cell) bool {
	for _, kind := range append(Kinds(), cell.ServiceKind) {
		if !c.Templates.Known(kind) {
			return false
		}
	}
	return true
}

// Find returns the object of a kind that exposes a Service, nil if there is none or it is being deleted.
func Find(c *cell.Cell, kind schema.GroupVersionKind, service cell.Key) *cell.Template {
	t := c.Templates.Get(cell.TemplateKey{GroupVersionKind: kind, Key: service})
	if t == nil || t.Deleting {
		return nil
	}
	return t
}

// CrossCluster is a MultiClusterService of that type.
type CrossCluster struct {
	Template *cell.Template
	// ID is the permanent ID, or the UID if there is none.
	ID string
	// Providers and Consumers are the clusters that offer and use the Service; nil means all.
	Providers, Consumers []string
	// Ports are the names of the ports that are exposed; nil means all.
	Ports []string
}

// CrossClusterOf returns the MultiClusterService of a Service, nil if there is none of the type CrossCluster.
func CrossClusterOf(c *cell.Cell, service cell.Key) (*CrossCluster, error) {
	t := Find(c, MultiClusterServiceKind, service)
	if t == nil {
		return nil, nil //nolint:nilnil // most Services have none
	}
	typed := &networkingv1alpha1.MultiClusterService{}
	if err := read(t, typed); err != nil {
		return nil, err
	}
	spec := &typed.Spec
	if !slices.Contains(spec.Types, networkingv1alpha1.ExposureTypeCrossCluster) {
		return nil, nil //nolint:nilnil // controllers of load balancers handle the others
	}
	exposed := &CrossCluster{
		Template: t, ID: t.Labels[names.MultiClusterServicePermanentIDLabel],
		Providers: clusters(spec.ProviderClusters, spec.ServiceProvisionClusters), Consumers: clusters(spec.ConsumerClusters, spec.ServiceConsumptionClusters),
	}
	if exposed.ID == "" {
		exposed.ID = string(t.UID)
	}
	for i := range spec.Ports {
		exposed.Ports = append(exposed.Ports, spec.Ports[i].Name)
	}
	return exposed, nil
}

// clusters returns the names of clusters, from the deprecated field if the other is not set.
func clusters(selected []networkingv1alpha1.ClusterSelector, deprecated []string) []string {
	if len(selected) == 0 {
		return deprecated
	}
	named := make([]string, 0, len(selected))
	for i := range selected {
		named = append(named, selected[i].Name)
	}
	return named
}

// Named returns the clusters that the MultiClusterService names, nil if it takes all.
func (m *CrossCluster) Named() []string {
	if len(m.Providers) == 0 || len(m.Consumers) == 0 {
		return nil
	}
	named := slices.Concat(m.Providers, m.Consumers)
	slices.Sort(named)
	return slices.Compact(named)
}

// Placement places the Service in the clusters that offer and use it.
func (m *CrossCluster) Placement() policyv1alpha1.Placement {
	var placement policyv1alpha1.Placement
	if named := m.Named(); named != nil {
		placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{ClusterNames: named}
	}
	return placement
}

// Imported is a ServiceImport together with the ServiceExport of the same Service.
type Imported struct {
	Template *cell.Template
	Import   *multiclusterv1alpha1.ServiceImport
	// Export is nil if nothing is exported.
	Export *multiclusterv1alpha1.ServiceExport
	// Providers and Consumers are the clusters that the ServiceExport and the ServiceImport are placed in.
	Providers, Consumers []string
}

// ImportOf returns the ServiceImport of a Service, nil if there is none.
func ImportOf(c *cell.Cell, service cell.Key) (*Imported, error) {
	t := Find(c, ServiceImportKind, service)
	if t == nil {
		return nil, nil //nolint:nilnil // most Services have none
	}
	imported := &Imported{Template: t, Import: &multiclusterv1alpha1.ServiceImport{}, Consumers: placed(c, t)}
	if err := read(t, imported.Import); err != nil {
		return nil, err
	}
	if export := Find(c, ServiceExportKind, service); export != nil {
		imported.Export, imported.Providers = &multiclusterv1alpha1.ServiceExport{}, placed(c, export)
		if err := read(export, imported.Export); err != nil {
			return nil, err
		}
	}
	return imported, nil
}

// placed returns the clusters of a template.
func placed(c *cell.Cell, t *cell.Template) []string {
	binding := c.Binding(t.Key().Binding())
	if binding == nil {
		return nil
	}
	if of := c.TemplateOf(binding); of == nil || of.UID != t.UID {
		return nil
	}
	return ClustersOf(binding)
}

// ClustersOf returns the clusters of a binding: those chosen for it, and those of the bindings that depend on it.
func ClustersOf(binding *workv1alpha2.ResourceBinding) []string {
	var all []string
	for i := range binding.Spec.Clusters {
		all = append(all, binding.Spec.Clusters[i].Name)
	}
	for i := range binding.Spec.RequiredBy {
		for j := range binding.Spec.RequiredBy[i].Clusters {
			all = append(all, binding.Spec.RequiredBy[i].Clusters[j].Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func read(t *cell.Template, into any) error {
	obj, err := t.Object()
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return fmt.Errorf("reading %s: %w", t.Key(), err)
	}
	return nil
}
