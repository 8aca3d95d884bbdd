// Package registry says what the ResourceRegistries of the hub select, and reports in their status how far the cache is.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
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
	return c
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
