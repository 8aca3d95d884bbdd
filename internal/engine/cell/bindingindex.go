package cell

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Indexes of bindings.
const (
	bindingsByLabel = iota
	bindingsByCluster
	bindingsByPlacement
	bindingsByGroup
)

func newBindings() *Store[workv1alpha2.ResourceBinding] {
	return newStore(condenseBinding, dependedBy, clustersOf, placementOf, groupsOf)
}

func condenseBinding(obj runtime.Object, _ *workv1alpha2.ResourceBinding) *workv1alpha2.ResourceBinding {
	if binding := bindingOf(obj); binding != nil {
		return compactBinding(binding)
	}
	return nil
}

// bindingOf returns a binding of either kind. The two differ only in scope.
func bindingOf(obj runtime.Object) *workv1alpha2.ResourceBinding {
	switch binding := obj.(type) {
	case *workv1alpha2.ResourceBinding:
		return binding
	case *workv1alpha2.ClusterResourceBinding:
		return (*workv1alpha2.ResourceBinding)(binding)
	default:
		return nil
	}
}

// dependedBy returns the labels that name the bindings that depend on a binding.
func dependedBy(binding *workv1alpha2.ResourceBinding) []string {
	var labels []string
	for label := range binding.Labels {
		if strings.HasPrefix(label, names.DependedByLabelPrefix) {
			labels = append(labels, label)
		}
	}
	return labels
}

// clustersOf returns the clusters of a binding: it is placed there, required there or being evicted.
func clustersOf(binding *workv1alpha2.ResourceBinding) []string {
	var clusters []string
	add := func(name string) {
		if !slices.Contains(clusters, name) {
			clusters = append(clusters, name)
		}
	}
	for i := range binding.Spec.Clusters {
		add(binding.Spec.Clusters[i].Name)
	}
	for i := range binding.Spec.RequiredBy {
		for j := range binding.Spec.RequiredBy[i].Clusters {
			add(binding.Spec.RequiredBy[i].Clusters[j].Name)
		}
	}
	for i := range binding.Spec.GracefulEvictionTasks {
		add(binding.Spec.GracefulEvictionTasks[i].FromCluster)
	}
	return clusters
}

// placementOf returns the placement that a binding was last scheduled with. Many bindings share one.
func placementOf(binding *workv1alpha2.ResourceBinding) []string {
	return []string{binding.Annotations[names.AppliedPlacementAnnotation]}
}

// groupsOf returns the groups that a binding belongs to.
func groupsOf(binding *workv1alpha2.ResourceBinding) []string {
	groups := binding.Spec.WorkloadAffinityGroups
	if groups == nil {
		return nil
	}
	var terms []string
	for _, group := range []string{groups.AffinityGroup, groups.AntiAffinityGroup} {
		if group != "" {
			terms = append(terms, binding.Namespace+"/"+group)
		}
	}
	return terms
}

// BindingsLabelled returns the bindings of both kinds with a label that names a binding that depends on them.
func (c *Cell) BindingsLabelled(label string) []*workv1alpha2.ResourceBinding {
	var found []*workv1alpha2.ResourceBinding
	for _, key := range c.bindingsIndexed(bindingsByLabel, label) {
		if binding := c.Binding(key); binding != nil {
			found = append(found, binding)
		}
	}
	return found
}

// BindingsIn returns the keys of the bindings of a cluster: they are placed there, required there or being evicted.
func (c *Cell) BindingsIn(cluster string) []Key { return c.bindingsIndexed(bindingsByCluster, cluster) }

// BindingsPlaced returns the keys of the bindings that were last scheduled with a placement, given as JSON.
func (c *Cell) BindingsPlaced(placement string) []Key {
	return c.bindingsIndexed(bindingsByPlacement, placement)
}

// Placements returns the distinct placements, as JSON, that bindings were last scheduled with. "" stands for bindings
// that were never scheduled.
func (c *Cell) Placements() []string {
	placements := c.bindings.terms(bindingsByPlacement)
	if c.clusterBindings != nil {
		placements = append(placements, c.clusterBindings.terms(bindingsByPlacement)...)
		slices.Sort(placements)
		placements = slices.Compact(placements)
	}
	return placements
}

// BindingsOfGroup returns the keys of the bindings of a namespace that belong to a group.
func (c *Cell) BindingsOfGroup(namespace, group string) []Key {
	return c.bindingsIndexed(bindingsByGroup, namespace+"/"+group)
}

func (c *Cell) bindingsIndexed(index int, term string) []Key {
	keys := c.bindings.indexed(index, term)
	if c.clusterBindings != nil {
		keys = append(keys, c.clusterBindings.indexed(index, term)...)
	}
	return keys
}

// Bindings returns the store of the bindings of a namespace. Without a namespace it is that of the cluster-scoped ones,
// nil if they are not cached.
func (c *Cell) Bindings(namespace string) *Store[workv1alpha2.ResourceBinding] {
	if namespace == "" {
		return c.clusterBindings
	}
	return c.bindings
}

// Binding returns a binding of either kind, nil if there is none.
func (c *Cell) Binding(key Key) *workv1alpha2.ResourceBinding {
	store := c.Bindings(key.Namespace)
	if store == nil {
		return nil
	}
	return store.Get(key)
}

// SubscribeBindings subscribes to the bindings of both kinds.
func (c *Cell) SubscribeBindings(f func(key Key, old, now *workv1alpha2.ResourceBinding)) {
	c.bindings.Subscribe(f)
	if c.clusterBindings != nil {
		c.clusterBindings.Subscribe(f)
	}
}

// BindingKeys returns the keys of the bindings of both kinds.
func (c *Cell) BindingKeys() []Key {
	keys := c.bindings.Keys()
	if c.clusterBindings != nil {
		keys = append(keys, c.clusterBindings.Keys()...)
	}
	return keys
}
