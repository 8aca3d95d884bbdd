package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/placement"
)

const (
	// watchedTimeout is how long a cell may take until it can be watched. Its API server continues meanwhile.
	watchedTimeout = 30 * time.Second
	// watchedWorkers is how many kinds are requested concurrently.
	watchedWorkers = 8
)

// checkWatched makes sure that the API server of a cell watches its store for each kind that is split by slot, so
// that it knows the history from now on. For a custom kind it begins with the first request.
func (r *reader) checkWatched(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchedTimeout)
	defer cancel()
	if _, err := r.client.Verb(http.MethodGet).AbsPath("/readyz").DoRaw(ctx); err != nil {
		return fmt.Errorf("the API server of cell %s is not ready: %w", r.cell, err)
	}
	resources, err := r.federated(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(watchedWorkers)
	for resource := range resources {
		group.Go(func() error { return r.checkKind(ctx, resource) })
	}
	return group.Wait()
}

// checkKind requests objects that do not exist. With a selector and resourceVersion 0 the API server answers from its
// cache. Until that is populated it refuses, and the client retries.
func (r *reader) checkKind(ctx context.Context, resource schema.GroupVersionResource) error {
	root := "/apis/" + resource.Group + "/" + resource.Version
	if resource.Group == "" {
		root = "/api/" + resource.Version
	}
	_, err := r.client.Verb(http.MethodGet).AbsPath(root, resource.Resource).SetHeader("Accept", mediaJSON).
		Param("resourceVersion", "0").
		Param("labelSelector", names.RebalanceStatusLabel+"=none").
		DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%s cannot be watched in cell %s yet: %w", resource.GroupResource(), r.cell, err)
	}
	return nil
}

// federated returns the resources that are split by slot, in all versions: each may have a cache of its own.
func (r *reader) federated(ctx context.Context) (sets.Set[schema.GroupVersionResource], error) {
	found := sets.New[schema.GroupVersionResource]()
	for _, path := range []string{"/api", "/apis"} {
		if err := r.discover(ctx, path, found); err != nil {
			return nil, fmt.Errorf("discovering the resources of cell %s: %w", r.cell, err)
		}
	}
	// Discovery may lag behind new custom kinds.
	definitions, err := r.definitions(ctx)
	if err != nil {
		return nil, err
	}
	for i := range definitions.Items {
		spec := &definitions.Items[i].Spec
		for _, version := range spec.Versions {
			if spec.Scope == apiextensionsv1.NamespaceScoped && version.Served {
				found.Insert(schema.GroupVersionResource{Group: spec.Group, Version: version.Name, Resource: spec.Names.Plural})
			}
		}
	}
	for resource := range found {
		// API servers have no cache of events: their watches read the store.
		if placement.InNamespace(resource.GroupResource(), "") == placement.OnHub || resource.Resource == "events" {
			found.Delete(resource)
		}
	}
	return found, nil
}

// aggregatedDiscovery requests all groups, versions and resources in one document.
const aggregatedDiscovery = mediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover adds the namespaced resources below a path that can be watched.
func (r *reader) discover(ctx context.Context, path string, found sets.Set[schema.GroupVersionResource]) error {
	body, err := r.client.Verb(http.MethodGet).AbsPath(path).SetHeader("Accept", aggregatedDiscovery).DoRaw(ctx)
	if err != nil {
		return err
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &groups); err != nil {
		return err
	}
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			for _, resource := range version.Resources {
				if resource.Scope == apidiscoveryv2.ScopeNamespace && slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "watch") {
					found.Insert(schema.GroupVersionResource{Group: group.Name, Version: version.Version, Resource: resource.Resource})
				}
			}
		}
	}
	return nil
}
