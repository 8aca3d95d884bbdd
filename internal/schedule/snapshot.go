package schedule

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Snapshot is a compiled set of clusters for many decisions. It is immutable and safe for concurrent use.
type Snapshot struct {
	members []member // sorted by name
	index   map[string]int
	serving sync.Map // kind → []bool
}

// member is a cluster with precomputed data.
type member struct {
	cluster  *clusterv1alpha1.Cluster
	profile  *cellplanev1alpha1.ClusterProfile // may be nil
	position int
	// Values of the fields by which clusters are grouped. A cluster may span several zones.
	provider, region, zones []string
	// completeAPIs means that the cluster's list of served kinds is complete.
	completeAPIs bool
	taints       []corev1.Taint // with the effects NoSchedule and NoExecute
	resources    resources
}

// kind is an API kind that a cluster must serve.
type kind struct{ apiVersion, kind string }

// Compile compiles clusters and their optional profiles. Neither may change afterwards.
func Compile(clusters []*clusterv1alpha1.Cluster, profiles ...*cellplanev1alpha1.ClusterProfile) *Snapshot {
	return (&Snapshot{}).Update(clusters, profiles...)
}

// Update compiles clusters and reuses the data of clusters that are the same object as before.
func (s *Snapshot) Update(clusters []*clusterv1alpha1.Cluster, profiles ...*cellplanev1alpha1.ClusterProfile) *Snapshot {
	known := make(map[string]*cellplanev1alpha1.ClusterProfile, len(profiles))
	for _, profile := range profiles {
		known[profile.Name] = profile
	}
	ordered := slices.Clone(clusters)
	slices.SortFunc(ordered, func(a, b *clusterv1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	updated := &Snapshot{members: make([]member, len(ordered)), index: make(map[string]int, len(ordered))}
	for i, cluster := range ordered {
		was, before := s.index[cluster.Name]
		if before && s.members[was].cluster == cluster && s.members[was].profile == known[cluster.Name] {
			updated.members[i] = s.members[was]
			updated.members[i].position = i
		} else {
			updated.members[i] = compileMember(cluster, known[cluster.Name], i)
		}
		updated.index[cluster.Name] = i
	}
	return updated
}

func compileMember(cluster *clusterv1alpha1.Cluster, profile *cellplanev1alpha1.ClusterProfile, position int) member {
	m := member{
		cluster: cluster, profile: profile, position: position,
		provider:     present(cluster.Spec.Provider),
		region:       present(cluster.Spec.Region),
		zones:        cluster.Spec.Zones,
		completeAPIs: meta.IsStatusConditionTrue(cluster.Status.Conditions, names.ClusterCompleteAPIEnablements),
		resources:    compileResources(cluster),
	}
	if len(m.zones) == 0 {
		m.zones = present(cluster.Spec.Zone)
	}
	for _, taint := range cluster.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			m.taints = append(m.taints, taint)
		}
	}
	return m
}

func present(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// serves reports for each member whether it serves the kind. A cluster without a list of served kinds is assumed to
// serve it.
func (s *Snapshot) serves(apiVersion, name string) []bool {
	key := kind{apiVersion, name}
	if known, ok := s.serving.Load(key); ok {
		return known.([]bool)
	}
	serving := make([]bool, len(s.members))
	for i := range s.members {
		serving[i] = lists(s.members[i].cluster, key)
	}
	s.serving.Store(key, serving)
	return serving
}

func lists(cluster *clusterv1alpha1.Cluster, wanted kind) bool {
	enablements := cluster.Status.APIEnablements
	for i := range enablements {
		if enablements[i].GroupVersion == wanted.apiVersion &&
			slices.ContainsFunc(enablements[i].Resources, func(r clusterv1alpha1.APIResource) bool { return r.Kind == wanted.kind }) {
			return true
		}
	}
	return len(enablements) == 0
}
