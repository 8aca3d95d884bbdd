// Package registry says what the ResourceRegistries of the hub select, and reports in their status how far the cache and the indexes are.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/index/opensearch"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
)

// Selection is what some ResourceRegistries select together. It is immutable.
type Selection struct {
	registries []compiled
}

// compiled is a ResourceRegistry.
type compiled struct {
	name     string
	clusters affinity.Matcher
	kinds    []selector
	err      error // why it selects nothing
	// target is where its objects are indexed, nil for nowhere, and targetErr why they cannot be.
	target    *index.Target
	targetErr error
}

type selector struct {
	kind      schema.GroupVersionKind
	namespace string
}

// Select returns what ResourceRegistries select. Those that are being deleted select nothing.
func Select(registries []*searchv1alpha1.ResourceRegistry) *Selection {
	s := &Selection{}
	for _, r := range registries {
		if r.DeletionTimestamp != nil {
			continue
		}
		s.registries = append(s.registries, compile(r))
	}
	slices.SortFunc(s.registries, func(a, b compiled) int { return cmp.Compare(a.name, b.name) })
	return s
}

func compile(r *searchv1alpha1.ResourceRegistry) compiled {
	c := compiled{name: r.Name}
	if c.clusters, c.err = affinity.Compile(&r.Spec.TargetCluster); c.err != nil {
		c.err = fmt.Errorf("spec.targetCluster.%w", c.err)
		return c
	}
	for i, given := range r.Spec.ResourceSelectors {
		version, err := schema.ParseGroupVersion(given.APIVersion)
		if err == nil && (version.Version == "" || given.Kind == "") {
			err = errors.New("apiVersion and kind must be given")
		}
		if err != nil {
			c.err = fmt.Errorf("spec.resourceSelectors[%d]: %w", i, err)
			c.kinds = nil
			return c
		}
		c.kinds = append(c.kinds, selector{version.WithKind(given.Kind), given.Namespace})
	}
	if store := r.Spec.BackendStore; store != nil && store.OpenSearch != nil {
		c.target, c.targetErr = compileTarget(store.OpenSearch)
	}
	return c
}

func compileTarget(given *searchv1alpha1.OpenSearchConfig) (*index.Target, error) {
	secret := types.NamespacedName{Namespace: given.SecretRef.Namespace, Name: given.SecretRef.Name}
	target := index.TargetOf(given.Addresses, secret)
	if secret.Namespace != names.SystemNamespace || secret.Name == "" {
		return &target, fmt.Errorf("spec.backendStore.openSearch.secretRef must name a Secret in the namespace %s", names.SystemNamespace)
	}
	for i, address := range given.Addresses {
		if err := opensearch.CheckAddress(address); err != nil {
			return &target, fmt.Errorf("spec.backendStore.openSearch.addresses[%d]: %w", i, err)
		}
	}
	return &target, nil
}

// Plans returns what is indexed of some clusters, each target and kind once.
func (s *Selection) Plans(clusters []*clusterv1alpha1.Cluster) []index.Plan {
	var all []index.Plan
	for _, r := range s.registries {
		if r.err != nil || r.target == nil || r.targetErr != nil {
			continue
		}
		for _, chosen := range r.kinds {
			i := slices.IndexFunc(all, func(p index.Plan) bool { return p.Kind == chosen.kind && p.Target == *r.target })
			if i < 0 {
				i = len(all)
				all = append(all, index.Plan{Target: *r.target, Kind: chosen.kind, Scope: index.Scope{}})
			}
			for _, cluster := range clusters {
				if r.clusters.Matches(cluster) {
					all[i].Scope.Add(cluster.Name, chosen.namespace)
				}
			}
		}
	}
	return all
}

// Choices returns what is selected in a cluster, each kind once.
func (s *Selection) Choices(cluster *clusterv1alpha1.Cluster) []ingest.Choice {
	var all []ingest.Choice
	for _, r := range s.registries {
		if r.err != nil || !r.clusters.Matches(cluster) {
			continue
		}
		for _, chosen := range r.kinds {
			i := slices.IndexFunc(all, func(c ingest.Choice) bool { return c.Kind == chosen.kind })
			switch {
			case i < 0 && chosen.namespace == "":
				all = append(all, ingest.Choice{Kind: chosen.kind})
			case i < 0:
				all = append(all, ingest.Choice{Kind: chosen.kind, Namespaces: []string{chosen.namespace}})
			case chosen.namespace == "":
				all[i].Namespaces = nil
			case all[i].Namespaces != nil && !slices.Contains(all[i].Namespaces, chosen.namespace):
				all[i].Namespaces = append(all[i].Namespaces, chosen.namespace)
				slices.Sort(all[i].Namespaces)
			}
		}
	}
	return all
}
