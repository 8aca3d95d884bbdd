package groups

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// group identifies a group.
type group struct{ namespace, label string }

// name returns the name of the record of a group.
func (g group) name() string {
	sum := sha256.Sum256([]byte(g.namespace + "/" + g.label))
	return "g-" + hex.EncodeToString(sum[:10])
}

// record returns an empty record.
func (g group) record() *cellplanev1alpha1.WorkloadGroup {
	return &cellplanev1alpha1.WorkloadGroup{
		ObjectMeta: metav1.ObjectMeta{Name: g.name()}, Spec: cellplanev1alpha1.WorkloadGroupSpec{Namespace: g.namespace, Group: g.label},
	}
}

// groupsOf returns the groups of a binding. Those of cluster-scoped templates need no record: they are all on the hub.
func groupsOf(binding *workv1alpha2.ResourceBinding) []group {
	if binding == nil || binding.Namespace == "" || binding.Spec.WorkloadAffinityGroups == nil {
		return nil
	}
	var all []group
	for _, label := range []string{binding.Spec.WorkloadAffinityGroups.AffinityGroup, binding.Spec.WorkloadAffinityGroups.AntiAffinityGroup} {
		if g := (group{binding.Namespace, label}); label != "" && !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// entryOf returns the entry of a cell's binding for a record, false if it has none. While a binding moves it is recorded by both cells, under one
// name, and the former one keeps its entry until the other has one.
func entryOf(cell string, record *cellplanev1alpha1.WorkloadGroup, binding *workv1alpha2.ResourceBinding) (cellplanev1alpha1.GroupedWorkload, bool) {
	g := group{record.Spec.Namespace, record.Spec.Group}
	if binding == nil || binding.DeletionTimestamp != nil || len(binding.Spec.Clusters) == 0 || !slices.Contains(groupsOf(binding), g) {
		return cellplanev1alpha1.GroupedWorkload{}, false
	}
	if binding.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated && slices.ContainsFunc(record.Spec.Workloads, func(w cellplanev1alpha1.GroupedWorkload) bool {
		return w.Binding == binding.Name && w.Cell != cell
	}) {
		return cellplanev1alpha1.GroupedWorkload{}, false
	}
	entry := cellplanev1alpha1.GroupedWorkload{
		Cell: cell, Binding: binding.Name, Clusters: clustersOf(binding),
		Together: binding.Spec.WorkloadAffinityGroups.AffinityGroup == g.label, Apart: binding.Spec.WorkloadAffinityGroups.AntiAffinityGroup == g.label,
	}
	return entry, true
}

// clustersOf returns the clusters of a binding, sorted.
func clustersOf(binding *workv1alpha2.ResourceBinding) []string {
	if binding == nil {
		return nil
	}
	var clusters []string
	for i := range binding.Spec.Clusters {
		clusters = append(clusters, binding.Spec.Clusters[i].Name)
	}
	slices.Sort(clusters)
	return clusters
}

// others returns the clusters of the workloads of other cells: those that stay together with the binding, and those that stay apart from it.
func others(record *cellplanev1alpha1.WorkloadGroup, cell, binding string) (together, apart []string) {
	for i := range record.Spec.Workloads {
		entry := &record.Spec.Workloads[i]
		if entry.Cell == cell || entry.Binding == binding {
			continue
		}
		if entry.Together {
			together = append(together, entry.Clusters...)
		}
		if entry.Apart {
			apart = append(apart, entry.Clusters...)
		}
	}
	return unique(together), unique(apart)
}

func unique(clusters []string) []string {
	slices.Sort(clusters)
	return slices.Compact(clusters)
}

// conflict returns a cluster that a decision adds although the group is, or is not, there; "" if there is none.
func conflict(g group, together, apart []string, before, after *workv1alpha2.ResourceBinding) string {
	was := clustersOf(before)
	for _, cluster := range clustersOf(after) {
		groups := after.Spec.WorkloadAffinityGroups
		switch {
		case slices.Contains(was, cluster):
		case groups.AffinityGroup == g.label && len(together) > 0 && !slices.Contains(together, cluster):
			return cluster
		case groups.AntiAffinityGroup == g.label && slices.Contains(apart, cluster):
			return cluster
		}
	}
	return ""
}

// replace sets the entries of a cell and reports whether the record changed.
func replace(record *cellplanev1alpha1.WorkloadGroup, cell string, mine []cellplanev1alpha1.GroupedWorkload) bool {
	next := slices.DeleteFunc(slices.Clone(record.Spec.Workloads), func(w cellplanev1alpha1.GroupedWorkload) bool { return w.Cell == cell })
	next = append(next, mine...)
	slices.SortFunc(next, func(a, b cellplanev1alpha1.GroupedWorkload) int {
		return strings.Compare(a.Binding+"/"+a.Cell, b.Binding+"/"+b.Cell)
	})
	same := slices.EqualFunc(record.Spec.Workloads, next, func(a, b cellplanev1alpha1.GroupedWorkload) bool {
		return a.Cell == b.Cell && a.Binding == b.Binding && a.Together == b.Together && a.Apart == b.Apart && slices.Equal(a.Clusters, b.Clusters)
	})
	record.Spec.Workloads = next
	return !same
}
