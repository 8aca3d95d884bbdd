package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Estimator returns how many more replicas of a template fit into a cluster, or how many sets if the template has
// several components. It returns Unknown if it cannot tell.
type Estimator func(*clusterv1alpha1.Cluster, *workv1alpha2.ResourceBindingSpec) int32

// Unknown is the result of an estimator that cannot tell.
const Unknown int32 = -1

const unknown = int64(Unknown)

// General is the Estimator that uses the resource summaries in the clusters' status: the sums of free resources and
// the number of nodes of each grade. It ignores node selectors, affinities and tolerations of pods.
func General(cluster *clusterv1alpha1.Cluster, spec *workv1alpha2.ResourceBindingSpec) int32 {
	m := compileMember(cluster, nil, 0)
	wanted := newNeed(spec, placesSets(spec))
	return int32(m.fit(&wanted))
}

// need is the resource demand of a replica or a set.
type need struct {
	pods  int64
	total []amount
	parts []part
}

// part is one pod template of a set, or the only one.
type part struct {
	replicas int64
	requests []amount
}

type amount struct {
	name  corev1.ResourceName
	value int64
}

func newNeed(spec *workv1alpha2.ResourceBindingSpec, sets bool) need {
	if !sets {
		var requests []amount
		if spec.ReplicaRequirements != nil {
			requests = amounts(spec.ReplicaRequirements.ResourceRequest)
		}
		return need{pods: 1, total: requests, parts: []part{{replicas: 1, requests: requests}}}
	}
	var set need
	for i := range spec.Components {
		component := &spec.Components[i]
		if component.Replicas <= 0 {
			continue
		}
		one := part{replicas: int64(component.Replicas)}
		if component.ReplicaRequirements != nil {
			one.requests = amounts(component.ReplicaRequirements.ResourceRequest)
		}
		set.pods += one.replicas
		set.parts = append(set.parts, one)
		for _, request := range one.requests {
			set.add(request.name, multiply(request.value, one.replicas))
		}
	}
	return set
}

func (n *need) add(name corev1.ResourceName, value int64) {
	for i := range n.total {
		if n.total[i].name == name {
			n.total[i].value = saturate(n.total[i].value, value)
			return
		}
	}
	n.total = append(n.total, amount{name, value})
}

func multiply(a, b int64) int64 {
	if a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

func saturate(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// amounts returns the positive requests, without pods, which are counted separately.
func amounts(list corev1.ResourceList) []amount {
	var requests []amount
	for name, quantity := range list {
		if value := units(name, &quantity); value > 0 && name != corev1.ResourcePods {
			requests = append(requests, amount{name, value})
		}
	}
	return requests
}

// units returns CPU in thousandths and other resources in whole units.
func units(name corev1.ResourceName, quantity *resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return quantity.MilliValue()
	}
	return quantity.Value()
}

// resources is the capacity of a cluster according to its resource summary.
type resources struct {
	pods int64
	free map[corev1.ResourceName]int64
	// total and allPods are the capacity of the empty cluster.
	total   map[corev1.ResourceName]int64
	allPods int64
	// nodes is the number of nodes of each grade, and least the minimum that such a node has free. Both are empty
	// if the cluster does not grade its nodes.
	nodes []int64
	least map[corev1.ResourceName][]int64
}

func compileResources(cluster *clusterv1alpha1.Cluster) resources {
	summary := cluster.Status.ResourceSummary
	if summary == nil {
		return resources{}
	}
	r := resources{free: make(map[corev1.ResourceName]int64, len(summary.Allocatable)), total: make(map[corev1.ResourceName]int64, len(summary.Allocatable))}
	for name, left := range summary.Allocatable {
		r.total[name] = units(name, &left)
		left = left.DeepCopy()
		left.Sub(summary.Allocated[name])
		left.Sub(summary.Allocating[name])
		r.free[name] = max(0, units(name, &left))
	}
	r.pods, r.allPods = r.free[corev1.ResourcePods], r.total[corev1.ResourcePods]
	r.grade(cluster.Spec.ResourceModels, summary.AllocatableModelings)
	return r
}

func (r *resources) grade(models []clusterv1alpha1.ResourceModel, counts []clusterv1alpha1.AllocatableModeling) {
	if len(models) == 0 || len(counts) == 0 {
		return
	}
	ordered := slices.Clone(models)
	slices.SortFunc(ordered, func(a, b clusterv1alpha1.ResourceModel) int { return a.Grade - b.Grade })
	r.nodes, r.least = make([]int64, len(ordered)), map[corev1.ResourceName][]int64{}
	for i := range ordered {
		for _, count := range counts {
			if count.Grade == ordered[i].Grade {
				r.nodes[i] = max(0, int64(count.Count))
			}
		}
		for _, bounds := range ordered[i].Ranges {
			if r.least[bounds.Name] == nil {
				r.least[bounds.Name] = make([]int64, len(ordered))
			}
			r.least[bounds.Name][i] = units(bounds.Name, &bounds.Min)
		}
	}
}

// fit returns how many replicas or sets fit.
func (m *member) fit(wanted *need) int64 {
	if wanted.pods == 0 {
		return math.MaxInt32
	}
	r := &m.resources
	most := min(r.pods/wanted.pods, math.MaxInt32)
	graded := true
	for i := range wanted.parts {
		inNodes, ok := r.fitNodes(wanted.parts[i].requests)
		if graded = graded && ok; ok {
			most = min(most, inNodes/wanted.parts[i].replicas)
		}
	}
	// Grades are more precise than sums. They cannot be used for several parts: each part would count all nodes.
	if graded && len(wanted.parts) == 1 {
		return most
	}
	for _, request := range wanted.total {
		most = min(most, r.free[request.name]/request.value)
	}
	return most
}

// fitNodes counts what fits the nodes of each grade, assuming that a node has only the minimum of its grade free.
// It returns false if the nodes are not graded by a requested resource.
func (r *resources) fitNodes(requests []amount) (most int64, ok bool) {
	if len(r.nodes) == 0 || len(requests) == 0 {
		return 0, false
	}
	lowest := 0
	for _, request := range requests {
		least, graded := r.least[request.name]
		if !graded {
			return 0, false
		}
		enough := slices.IndexFunc(least, func(value int64) bool { return value >= request.value })
		if enough < 0 {
			enough = len(r.nodes)
		}
		lowest = max(lowest, enough)
	}
	for grade := lowest; grade < len(r.nodes); grade++ {
		if r.nodes[grade] == 0 {
			continue
		}
		perNode := int64(math.MaxInt32)
		for _, request := range requests {
			perNode = min(perNode, r.least[request.name][grade]/request.value)
		}
		most = saturate(most, multiply(perNode, r.nodes[grade]))
	}
	return most, true
}
