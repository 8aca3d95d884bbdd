package kinds

import (
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// Resource is a resource that the hub serves.
type Resource struct {
	schema.GroupVersionResource
	// Kind is the kind of its objects.
	Kind string
	// Namespaced is set if its objects are in namespaces.
	Namespaced bool
	// Verbs are the supported verbs.
	Verbs []string
}

// Can reports whether a verb is supported.
func (r Resource) Can(verb string) bool { return slices.Contains(r.Verbs, verb) }

// Catalog is an immutable snapshot of all resources.
type Catalog struct {
	resources map[schema.GroupVersionResource]Resource
	// Kinds are the kinds that bindings can be named after.
	Kinds slots.Kinds
	// hubKinds are those of them, in lower case, whose templates all live on the hub.
	hubKinds map[string]bool
	// announced are the documents of discovery, and all is made from them.
	announced documents
	all       *Shown
	// limited has the most recent Shown of each limit.
	limited *lru.Cache
}

// Lookup returns a resource.
func (c *Catalog) Lookup(gvr schema.GroupVersionResource) (Resource, bool) {
	resource, found := c.resources[gvr]
	return resource, found
}

// TemplateOnHub reports whether the template that a binding is named after lives on the hub.
func (c *Catalog) TemplateOnHub(binding string) bool {
	for template := range c.Kinds.Templates(binding) {
		return c.hubKinds[template.Kind] // the first is nearly always the right one
	}
	return false
}

// All yields every resource in every version that is served.
func (c *Catalog) All(yield func(Resource) bool) {
	for _, resource := range c.resources {
		if !yield(resource) {
			return
		}
	}
}

// documents are the two aggregated discovery documents of an API server.
type documents struct {
	Core   apidiscoveryv2.APIGroupDiscoveryList `json:"core"`
	Groups apidiscoveryv2.APIGroupDiscoveryList `json:"groups"`
}

// newCatalog returns a catalog of what the hub serves, and of other groups. Resources that live in cells are announced if all cells serve them.
func newCatalog(hub documents, cells []documents, expose func(schema.GroupResource) bool, others ...apidiscoveryv2.APIGroupDiscovery) *Catalog {
	c := &Catalog{resources: map[schema.GroupVersionResource]Resource{}}
	served := make([]map[schema.GroupVersionResource]bool, len(cells))
	for i, cell := range cells {
		served[i] = map[schema.GroupVersionResource]bool{}
		cell.each(func(r Resource) { served[i][r.GroupVersionResource] = true })
	}
	var all []string
	c.hubKinds = map[string]bool{}
	hub.each(func(r Resource) {
		c.resources[r.GroupVersionResource] = r
		if r.Namespaced {
			all = append(all, r.Kind)
			kind, onHub := strings.ToLower(r.Kind), placement.InNamespace(r.GroupResource(), "any") == placement.OnHub
			known, seen := c.hubKinds[kind]
			c.hubKinds[kind] = onHub && (known || !seen)
		}
	})
	c.Kinds = slots.NewKinds(all...)
	announced := hub.filter(func(r Resource) bool {
		if !expose(r.GroupResource()) {
			return false
		}
		if !r.Namespaced || placement.InNamespace(r.GroupResource(), "any") == placement.OnHub {
			return true
		}
		return !slices.ContainsFunc(served, func(cell map[schema.GroupVersionResource]bool) bool { return !cell[r.GroupVersionResource] })
	})
	for _, group := range others {
		announced = announced.with(group)
		c.add(group)
	}
	c.announced, c.all, c.limited = announced, newShown(announced, announced.resources()), lru.New(limitsCached)
	return c
}

// add adds the resources of a group that the hub does not serve.
func (c *Catalog) add(group apidiscoveryv2.APIGroupDiscovery) {
	documents{Groups: apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group}}}.each(func(r Resource) {
		if _, found := c.resources[r.GroupVersionResource]; !found {
			c.resources[r.GroupVersionResource] = r
		}
	})
}

// resources returns all resources, with all that is beneath them.
func (d documents) resources() *Announced {
	var resources []schema.GroupVersionResource
	d.each(func(r Resource) { resources = append(resources, r.GroupVersionResource) })
	return NewAnnounced(resources...)
}

func (d documents) each(visit func(Resource)) {
	for _, list := range []apidiscoveryv2.APIGroupDiscoveryList{d.Core, d.Groups} {
		for _, group := range list.Items {
			for _, version := range group.Versions {
				for _, resource := range version.Resources {
					visit(resourceOf(group.Name, version.Version, resource))
				}
			}
		}
	}
}

func resourceOf(group, version string, r apidiscoveryv2.APIResourceDiscovery) Resource {
	resource := Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: r.Resource},
		Namespaced:           r.Scope == apidiscoveryv2.ScopeNamespace,
		Verbs:                r.Verbs,
	}
	if r.ResponseKind != nil {
		resource.Kind = r.ResponseKind.Kind
	}
	return resource
}

// filter returns the documents with the selected resources only. Empty versions and groups are left out.
func (d documents) filter(keep func(Resource) bool) documents {
	return documents{Core: filterList(d.Core, keep), Groups: filterList(d.Groups, keep)}
}

func filterList(list apidiscoveryv2.APIGroupDiscoveryList, keep func(Resource) bool) apidiscoveryv2.APIGroupDiscoveryList {
	var kept apidiscoveryv2.APIGroupDiscoveryList
	for _, group := range list.Items {
		filtered := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.Name}}
		for _, version := range group.Versions {
			v := apidiscoveryv2.APIVersionDiscovery{Version: version.Version, Freshness: version.Freshness}
			for _, resource := range version.Resources {
				if keep(resourceOf(group.Name, version.Version, resource)) {
					v.Resources = append(v.Resources, withProxy(group.Name, resource))
				}
			}
			if group.Name == searchGroup && len(v.Resources) > 0 {
				v.Resources = append(v.Resources, connected()...)
			}
			if len(v.Resources) > 0 || len(version.Resources) == 0 {
				filtered.Versions = append(filtered.Versions, v)
			}
		}
		if len(filtered.Versions) > 0 {
			kept.Items = append(kept.Items, filtered)
		}
	}
	return kept
}

const searchGroup = "search.karmada.io"

// connected returns the resources of search.karmada.io that only gateways serve, as they are not stored.
func connected() []apidiscoveryv2.APIResourceDiscovery {
	resource := func(name, kind, subresource string, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
		of := &metav1.GroupVersionKind{Group: searchGroup, Version: "v1alpha1", Kind: kind}
		return apidiscoveryv2.APIResourceDiscovery{
			Resource: name, SingularResource: name, ResponseKind: of, Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"get"},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: subresource, ResponseKind: of, Verbs: verbs}},
		}
	}
	return []apidiscoveryv2.APIResourceDiscovery{
		resource("proxying", "Proxying", "proxy", "create", "delete", "get", "patch", "update"),
		resource("search", "Search", "cache", "get"),
	}
}

// withProxy adds clusters/proxy, which only gateways serve: a CustomResourceDefinition cannot have such a subresource.
func withProxy(group string, r apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIResourceDiscovery {
	if group != "cluster.karmada.io" || r.Resource != "clusters" {
		return r
	}
	r.Subresources = append(slices.Clone(r.Subresources), apidiscoveryv2.APISubresourceDiscovery{
		Subresource:  "proxy",
		ResponseKind: &metav1.GroupVersionKind{Kind: "ClusterProxyOptions"},
		Verbs:        []string{"create", "delete", "get", "patch", "update"},
	})
	return r
}
