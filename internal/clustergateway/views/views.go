// Package views lists the kinds of member objects that can be shown, and the groups and versions in which they are served. Gateways and
// cluster-gateways have to agree on them.
package views

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ContestedHeader is set in watch requests of gateways that merge several shares of the clusters. If objects of several clusters have one
// name, such a watch gets DELETED events with the annotation names.ContestedAnnotation, and the gateway looks up which one is shown.
const ContestedHeader = "Cellplane-Contested"

// OthersHeader is set in requests of gateways that can ask another replica. A watch from a version that this one cannot continue from is
// then answered with the status 410 instead of an event.
const OthersHeader = "Cellplane-Others"

// TemplateHeader is set in the answer to a get of a template. The cache may be behind its cell, so the gateway reads it from there.
const TemplateHeader = "Cellplane-Template"

const (
	// SearchPath is the path of the cache of ResourceRegistries. It is followed by that of an ordinary request for a resource.
	SearchPath = "/apis/search.karmada.io/v1alpha1/search/cache"
	// ProxyingPath is the path under which all clusters look like one.
	ProxyingPath = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"
	// UncachedHeader is set in the answer to a request under them for a resource that no ResourceRegistry selects.
	UncachedHeader = "Cellplane-Uncached"
	// ClusterHeader is set in a get under ProxyingPath of an object of a certain cluster.
	ClusterHeader = "Cellplane-Cluster"
)

// ReportsPath is the path of the MetricsReport of a cluster, without its name.
const ReportsPath = "/apis/metrics.cellplane.io/v1alpha1/metricsreports/"

// ElsewhereHeader is set in the answer to a MetricsReport of a cluster that another share shows. It still says which metrics are wanted: only
// one share may know that.
const ElsewhereHeader = "Cellplane-Elsewhere"

// Metrics are the WorkloadMetrics that agents push. They are always shown.
var Metrics = schema.GroupVersionResource{Group: "metrics.cellplane.io", Version: "v1alpha1", Resource: "workloadmetrics"}

// View is a kind of member object.
type View struct {
	// Resource is the resource to read from members.
	Resource schema.GroupVersionResource
	// Aliases are other groups and versions in which the same objects are served.
	Aliases []schema.GroupVersionResource
	// Templates is set if the federation has objects of the kind itself. They are shown until a member has them.
	Templates bool
}

// Default returns the default views.
func Default() []View { return slices.Clone(known) }

// known are the possible views: their selectable fields and Table columns are defined.
var known = []View{
	{Resource: core("pods"), Templates: true},
	{Resource: core("events"), Templates: true, Aliases: []schema.GroupVersionResource{{Group: "events.k8s.io", Version: "v1", Resource: "events"}}},
	{Resource: core("nodes")},
	{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, Templates: true},
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// Parse returns the views of the given names, which are written as resource.group.
func Parse(names []string) ([]View, error) {
	var chosen []View
	for _, name := range names {
		wanted := schema.ParseGroupResource(name)
		i := slices.IndexFunc(known, func(v View) bool { return v.Resource.GroupResource() == wanted })
		if i < 0 {
			return nil, fmt.Errorf("%q cannot be a member view; choose from %s", name, strings.Join(Names(known), ", "))
		}
		if !slices.ContainsFunc(chosen, func(v View) bool { return v.Resource == known[i].Resource }) {
			chosen = append(chosen, known[i])
		}
	}
	return chosen, nil
}

// Names returns the names that Parse understands.
func Names(views []View) []string {
	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.Resource.GroupResource().String()
	}
	return names
}

// Path returns the API path of all objects of a resource.
func Path(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return "/api/" + resource.Version + "/" + resource.Resource
	}
	return "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
}
