package kinds

import (
	"context"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/served"
)

// limitsCached is for how many limits the discovery documents are cached.
const limitsCached = 128

// Shown is the part of a Catalog that a user is shown.
type Shown struct {
	// Announced are the resources in discovery.
	Announced *Announced
	// handlers are those of discovery, by path.
	handlers map[string]http.Handler
	hashes   *storageHashes // nil for none
}

func newShown(d documents, announced *Announced) *Shown {
	return &Shown{Announced: announced, handlers: d.handlers()}
}

// Handler returns the handler of a discovery path, nil if there is none.
func (s *Shown) Handler(path string) http.Handler {
	path = strings.TrimSuffix(path, "/")
	handler := s.handlers[path]
	if constant, ok := handler.(fixed); ok && s.hashes != nil {
		if list, ok := constant.object.(*metav1.APIResourceList); ok {
			return hashed{list, path, s.hashes}
		}
	}
	return handler
}

// For returns what the user of a request is shown.
func (c *Catalog) For(ctx context.Context) *Shown {
	limit := served.From(ctx)
	if limit == nil {
		return c.all
	}
	if found, ok := c.limited.Get(limit); ok {
		return found.(*Shown)
	}
	d, announced := c.announced.limitedTo(limit)
	shown := newShown(d, announced)
	shown.hashes = c.all.hashes
	c.limited.Add(limit, shown)
	return shown
}

// limitedTo returns the documents with what a limit allows, without empty versions and groups.
func (d documents) limitedTo(limit *served.Limit) (documents, *Announced) {
	verbs := map[schema.GroupVersion]map[string][]string{}
	limited := func(list apidiscoveryv2.APIGroupDiscoveryList) apidiscoveryv2.APIGroupDiscoveryList {
		var kept apidiscoveryv2.APIGroupDiscoveryList
		for _, group := range list.Items {
			left := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: group.ObjectMeta}
			for _, version := range group.Versions {
				in := map[string][]string{}
				v := apidiscoveryv2.APIVersionDiscovery{Version: version.Version, Freshness: version.Freshness}
				for _, resource := range version.Resources {
					if r, some := limitResource(limit, group.Name, resource, in); some {
						v.Resources = append(v.Resources, r)
					}
				}
				if len(v.Resources) > 0 {
					left.Versions = append(left.Versions, v)
					verbs[schema.GroupVersion{Group: group.Name, Version: version.Version}] = in
				}
			}
			if len(left.Versions) > 0 {
				kept.Items = append(kept.Items, left)
			}
		}
		return kept
	}
	left := documents{Core: limited(d.Core), Groups: limited(d.Groups)}
	return left, NewLimited(verbs)
}

// limitResource returns a resource with the verbs and subresources that a limit allows, and enters them into verbs. Clients expect a
// resource of which only subresources are left to have no kind.
func limitResource(limit *served.Limit, group string, r apidiscoveryv2.APIResourceDiscovery, verbs map[string][]string) (left apidiscoveryv2.APIResourceDiscovery, some bool) {
	resource := schema.GroupResource{Group: group, Resource: r.Resource}
	allowed := func(subresource string, from []string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(verb string) bool { return !limit.Allows(resource, subresource, verb) })
	}
	left = r
	left.Verbs, left.Subresources = allowed("", r.Verbs), nil
	if len(left.Verbs) > 0 {
		verbs[r.Resource] = left.Verbs
	} else {
		left = apidiscoveryv2.APIResourceDiscovery{Resource: r.Resource, Scope: r.Scope, SingularResource: r.SingularResource, ResponseKind: &metav1.GroupVersionKind{}}
	}
	for _, s := range r.Subresources {
		if s.Verbs = allowed(s.Subresource, s.Verbs); len(s.Verbs) > 0 {
			left.Subresources = append(left.Subresources, s)
			verbs[r.Resource+"/"+s.Subresource] = s.Verbs
		}
	}
	return left, len(left.Verbs) > 0 || len(left.Subresources) > 0
}
