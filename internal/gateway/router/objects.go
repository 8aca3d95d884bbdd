package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/slots"
)

// Objects reads what is behind a router, as the gateway. It decides about requests of users, so that it sees more than they do.
type Objects struct {
	*Router
	// Hub sends a request to the hub as the gateway and returns what it answers.
	Hub func(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error)
}

var errNoCells = apierrors.NewServiceUnavailable("the gateway does not know its cells yet; try again in a moment")

// Get reads the JSON of the object that a request is about, without its subresource.
func (o Objects) Get(ctx context.Context, info *request.RequestInfo) ([]byte, error) {
	c := &call{RequestInfo: info, view: o.Topology.View(), placement: o.place(ctx, info)}
	if c.placement == placement.OnHub {
		return o.Hub(ctx, http.MethodGet, c.objectPath(info.Name), nil, nil)
	}
	if c.view == nil {
		return nil, errNoCells
	}
	return retried(ctx, o.Router, c, func() ([]byte, error) { return o.get(ctx, c) })
}

// retried tries to read something until the map that it was read by is in force, and what moves stands still.
func retried[T any](ctx context.Context, rt *Router, c *call, read func() (T, error)) (T, error) {
	var held hold
	defer held.end()
	for {
		got, err := read()
		switch {
		case errors.Is(err, errStaleMap):
			err = held.newer(ctx, rt.Topology, c)
		case errors.Is(err, errWait):
			err = held.look(ctx)
		default:
			return got, err
		}
		if err != nil {
			return got, err
		}
	}
}

// get reads an object where it is.
func (o Objects) get(ctx context.Context, c *call) ([]byte, error) {
	seen := sight{state: active}
	var err error
	if seen.cell, err = o.locateFast(c); err != nil {
		if seen, err = o.find(ctx, c); err != nil {
			return nil, err
		}
	}
	data, err := o.inCell(ctx, c, seen.cell, http.MethodGet, c.objectPath(c.Name), nil, nil)
	switch {
	case apierrors.IsNotFound(err):
		if stale := o.confirm(ctx, c, seen.cell); stale != nil {
			return nil, stale
		}
	case err == nil && stateOf(statusIn("application/json", data)) == absent:
		return nil, errWait
	}
	return data, err
}

// locateFast returns the cell of an object whose name tells it.
func (o Objects) locateFast(c *call) (slots.Index, error) {
	route := c.view.Locate(o.slotOf(c, c.Name, ""))
	if c.placement != placement.ByName || route.Moving() {
		return 0, errWait
	}
	return route.New, nil
}

// Find returns the JSON of the objects of a resource that selectors pick, at most limit of each control plane; 0 means all.
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
	return retried(ctx, o.Router, c, func() ([][]byte, error) { return o.findIn(ctx, c, query) })
}

// findIn lists what cells have. A cell that objects move from is asked before the one they move to: what has left the one is in the
// other by then.
func (o Objects) findIn(ctx context.Context, c *call, query url.Values) ([][]byte, error) {
	query = cloneQuery(query)
	query.Set("labelSelector", strings.TrimPrefix(query.Get("labelSelector")+","+names.RebalanceStatusLabel+"!="+names.RebalanceMigrated, ","))
	cells := c.view.Cells()
	found := make([][][]byte, len(cells))
	stages := stagesOf(c, cells)
	slices.Reverse(stages)
	for _, stage := range stages {
		group, ctx := errgroup.WithContext(ctx)
		for _, i := range stage {
			group.Go(func() error {
				data, err := o.inCell(ctx, c, cells[i], http.MethodGet, c.collectionPath(), query, nil)
				if err == nil {
					found[i], err = itemsOf(data)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	if err := o.confirmAll(ctx, c, cells); err != nil {
		return nil, err
	}
	if !c.view.Moving() {
		return slices.Concat(found...), nil
	}
	return withoutCopies(slices.Concat(found...)), nil
}

// withoutCopies leaves one of the objects that are in two cells.
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

// Resource returns a resource.
func (o Objects) Resource(ctx context.Context, gvr schema.GroupVersionResource) (kinds.Resource, bool) {
	return o.Kinds.Lookup(ctx, gvr)
}

// Namespaced returns every namespaced resource that can be listed and deleted, each in one version.
func (o Objects) Namespaced() []kinds.Resource {
	catalog := o.Kinds.Catalog()
	if catalog == nil {
		return nil
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
	resources := make([]kinds.Resource, 0, len(chosen))
	for _, r := range chosen {
		resources = append(resources, r)
	}
	slices.SortFunc(resources, func(a, b kinds.Resource) int {
		return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
	})
	return resources
}

func itemsOf(list []byte) ([][]byte, error) {
	var decoded struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := utiljson.Unmarshal(list, &decoded); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading a list: %w", err))
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

// inCell sends a request to a cell as the gateway and returns what it answers.
func (rt *Router) inCell(ctx context.Context, c *call, cell slots.Index, method, path string, query url.Values, body []byte) ([]byte, error) {
	upstream := c.view.Upstreams[cell]
	if upstream == nil {
		return nil, forward.Unreachable(c.view.Name(cell), nil)
	}
	return exchangeJSON(ctx, upstream, c.scope(), method, path, query, body)
}

// exchangeJSON sends a request as the gateway. An answer that is an error is returned as one.
func exchangeJSON(ctx context.Context, upstream *fleet.Upstream, scope forward.Scope, method, path string, query url.Values, body []byte) ([]byte, error) {
	r := (&http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Header: http.Header{"Accept": {"application/json"}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	forward.AsGateway(r, scope)
	response, err := upstream.RoundTrip(r)
	if err != nil {
		return nil, forward.Unreachable(upstream.Name(), err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxOwnAnswer+1))
	if err == nil && len(answer) > maxOwnAnswer {
		err = errors.New("the answer is too large")
	}
	if err != nil {
		return nil, forward.Unreachable(upstream.Name(), err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		status := readStatus(answer)
		if scope.Cell && refusesUser(status) {
			return nil, unready(upstream.Name())
		}
		if status != nil {
			return nil, &apierrors.StatusError{ErrStatus: *status}
		}
		return nil, apierrors.NewGenericServerResponse(response.StatusCode, method, schema.GroupResource{}, "", string(answer), 0, true)
	}
	return answer, nil
}

// maxOwnAnswer bounds what the gateway reads for itself.
const maxOwnAnswer = 64 << 20
