package router

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// Objects reads objects behind a router as the gateway. The gateway needs them to decide about requests, so it sees more than users do.
type Objects struct {
	*Router
	// Hub sends a request to the hub as the gateway and returns the answer.
	Hub func(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error)
}

var errNoCells = apierrors.NewServiceUnavailable("the gateway has not loaded its cells yet; try again in a moment")

// Get returns the JSON of the object of a request, without its subresource. It has the version that clients see.
func (o Objects) Get(ctx context.Context, info *request.RequestInfo) ([]byte, error) {
	c := &call{RequestInfo: info, view: o.Topology.View(), placement: o.place(ctx, info)}
	if c.placement == placement.OnHub {
		return o.Hub(ctx, http.MethodGet, c.objectPath(info.Name), nil, nil)
	}
	if c.view == nil {
		return nil, errNoCells
	}
	var data []byte
	var answer error
	var from slots.Index
	_, err := o.drive(ctx, c, o.request(c, routing.Read, c.Name, ""), c.Name, exchange{
		fetch: func(cell slots.Index) (routing.State, error) {
			from = cell
			data, answer = o.inCell(ctx, c, cell, http.MethodGet, c.objectPath(c.Name), nil, nil)
			switch {
			case apierrors.IsNotFound(answer):
				return routing.Absent, nil
			case answer != nil:
				return routing.Absent, answer
			}
			return routing.StateOf(statusIn("application/json", data)), nil
		},
	})
	if err == nil {
		err = answer
	}
	if err != nil {
		return nil, err
	}
	if data, err = o.stamp(c, from, c.Name, "application/json", data); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading %s %s: %w", c.qualified(), c.Name, err))
	}
	return data, nil
}

// Find returns the JSON of the objects of a resource that a query selects, at most limit from each control plane; 0 means all. They
// have the resourceVersions of their control planes.
func (o Objects) Find(ctx context.Context, resource kinds.Resource, namespace string, query url.Values, limit int) ([][]byte, error) {
	c := o.collection(resource, namespace)
	query = cloneQuery(query)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if c.placement == placement.OnHub {
		data, err := o.Hub(ctx, http.MethodGet, c.collectionPath(), query, nil)
		if err != nil {
			return nil, err
		}
		return itemsOf(data)
	}
	if c.view == nil {
		return nil, errNoCells
	}
	return o.findIn(ctx, c, query)
}

// findIn lists the objects in the cells, without moved ones.
func (o Objects) findIn(ctx context.Context, c *call, query url.Values) ([][]byte, error) {
	query.Set("labelSelector", strings.TrimPrefix(query.Get("labelSelector")+","+names.RebalanceStatusLabel+"!="+names.RebalanceMigrated, ","))
	var held heldRequest
	defer held.end()
	collection := routing.NewCollection(routing.OldFirst, bounds)
	for {
		found := make([][][]byte, c.width())
		action, err := o.driveList(ctx, c, &collection, collection.Start(&c.view.View, c.places(), false), func(cells []slots.Index) ([]slots.Index, error, error) {
			group, ctx := errgroup.WithContext(ctx)
			for _, cell := range cells {
				group.Go(func() error {
					data, err := o.inCell(ctx, c, cell, http.MethodGet, c.collectionPath(), query, nil)
					switch {
					case apierrors.IsNotFound(err):
						return nil // this cell does not serve the kind, and has none of it
					case err != nil:
						return err
					}
					found[cell], err = itemsOf(data)
					return err
				})
			}
			return cells, nil, group.Wait()
		})
		if err == nil && action.Kind == routing.AwaitView {
			if err = o.nextView(ctx, c, &collection, action, &held); err == nil {
				continue
			}
		}
		switch {
		case err != nil:
			return nil, err
		case !c.view.Moving():
			return slices.Concat(found...), nil
		default:
			return withoutCopies(slices.Concat(found...)), nil
		}
	}
}

// withoutCopies keeps one of each pair of objects with the same UID.
func withoutCopies(objects [][]byte) [][]byte {
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(objects, func(object []byte) bool {
		var decoded metav1.PartialObjectMetadata
		if utiljson.Unmarshal(object, &decoded) != nil || decoded.UID == "" {
			return false
		}
		again := seen[decoded.UID]
		seen[decoded.UID] = true
		return again
	})
}

// collection is a request for all objects of a resource.
func (o Objects) collection(resource kinds.Resource, namespace string) *call {
	info := &request.RequestInfo{APIPrefix: "apis", APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, Namespace: namespace}
	if resource.Group == "" {
		info.APIPrefix = "api"
	}
	place := placement.OnHub
	if resource.Namespaced {
		place = placement.InNamespace(resource.GroupResource(), namespace)
	}
	return &call{RequestInfo: info, view: o.Topology.View(), placement: place}
}

// Resource looks up a resource.
func (o Objects) Resource(ctx context.Context, gvr schema.GroupVersionResource) (kinds.Resource, bool) {
	return o.Kinds.Lookup(ctx, gvr)
}

// Namespaced returns every namespaced resource that can be listed and deleted, each in one version. Those of new definitions are
// included before discovery lists them.
func (o Objects) Namespaced(ctx context.Context) ([]kinds.Resource, error) {
	catalog := o.Kinds.Catalog()
	if catalog == nil {
		return nil, errNoKinds
	}
	chosen := map[schema.GroupResource]kinds.Resource{}
	catalog.All(func(r kinds.Resource) bool {
		if r.Namespaced && r.Can("list") && r.Can("delete") {
			if other, found := chosen[r.GroupResource()]; !found || r.Version < other.Version {
				chosen[r.GroupResource()] = r
			}
		}
		return true
	})
	defined, err := o.defined(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range defined {
		if _, found := chosen[r.GroupResource()]; !found {
			chosen[r.GroupResource()] = r
		}
	}
	resources := make([]kinds.Resource, 0, len(chosen))
	for _, r := range chosen {
		resources = append(resources, r)
	}
	slices.SortFunc(resources, func(a, b kinds.Resource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	return resources, nil
}

var errNoKinds = apierrors.NewServiceUnavailable("the gateway has not loaded its API yet; try again in a moment")

// defined returns the namespaced resources of the hub's CustomResourceDefinitions, each in a version that is served.
func (o Objects) defined(ctx context.Context) ([]kinds.Resource, error) {
	data, err := o.Hub(ctx, http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", nil, nil)
	if err != nil {
		return nil, err
	}
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := utiljson.Unmarshal(data, &list); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding the definitions of the hub: %w", err))
	}
	var resources []kinds.Resource
	for i := range list.Items {
		spec := &list.Items[i].Spec
		served := slices.IndexFunc(spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
		if served >= 0 && spec.Scope == apiextensionsv1.NamespaceScoped {
			resources = append(resources, kinds.Resource{
				GroupVersionResource: schema.GroupVersionResource{Group: spec.Group, Version: spec.Versions[served].Name, Resource: spec.Names.Plural},
				Kind:                 spec.Names.Kind,
				Namespaced:           true,
			})
		}
	}
	return resources, nil
}

func itemsOf(list []byte) ([][]byte, error) {
	var decoded struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := utiljson.Unmarshal(list, &decoded); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding a list: %w", err))
	}
	items := make([][]byte, len(decoded.Items))
	for i, item := range decoded.Items {
		items[i] = item
	}
	return items, nil
}

func cloneQuery(query url.Values) url.Values {
	clone := make(url.Values, len(query)+2)
	for key, values := range query {
		clone[key] = values
	}
	return clone
}

// inCell sends a request to a cell, or to the hub, as the gateway and returns the answer.
func (rt *Router) inCell(ctx context.Context, c *call, cell slots.Index, method, path string, query url.Values, body []byte) ([]byte, error) {
	if c.isHub(cell) {
		return exchangeJSON(ctx, rt.OwnHub, forward.Hub, method, path, query, body)
	}
	upstream := c.view.Upstreams[cell]
	if upstream == nil {
		return nil, forward.Unreachable(c.view.Name(cell), nil)
	}
	return exchangeJSON(ctx, upstream, c.scope(cell), method, path, query, body)
}

// exchangeJSON sends a request as the gateway. An answer with an error status is returned as an error.
func exchangeJSON(ctx context.Context, upstream server, scope forward.Scope, method, path string, query url.Values, body []byte) ([]byte, error) {
	response, err := upstream.RoundTrip(forward.OwnRequest(ctx, scope, method, path, query, body))
	if response, err = forward.Accepted(upstream.Name(), response, err); err != nil {
		return nil, forward.Unread(upstream.Name(), err)
	}
	defer response.Body.Close()
	answer, err := forward.ReadAll(ctx, response.Body, response.ContentLength, maxOwnAnswer, ownCopies)
	if err != nil {
		return nil, forward.Unread(upstream.Name(), err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		status := readStatus(answer)
		switch refused := refusesUser(status); {
		case refused && scope.Cell:
			return nil, unready(upstream.Name())
		case refused:
			return nil, hubRefuses(status)
		}
		if status != nil {
			return nil, &apierrors.StatusError{ErrStatus: *status}
		}
		return nil, apierrors.NewGenericServerResponse(response.StatusCode, method, schema.GroupResource{}, "", string(answer), 0, true)
	}
	return answer, nil
}

const (
	// maxOwnAnswer limits the answers to the gateway's own requests.
	maxOwnAnswer = 64 << 20
	// ownCopies is how often such an answer is in memory: as received and decoded.
	ownCopies = 2
)
