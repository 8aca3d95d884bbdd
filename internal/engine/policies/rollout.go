package policies

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

// Rollout is a compiled RolloutPolicy or ClusterRolloutPolicy. It is immutable.
type Rollout struct {
	// Namespace is empty for a ClusterRolloutPolicy.
	Namespace, Name string
	Spec            *cellplanev1alpha1.RolloutPolicySpec
	// Invalid is why no update may begin by the policy; nil if there is no reason.
	Invalid error

	selectors
	clusters []affinity.Matcher // of the stages
}

// String returns kind and name, for messages.
func (r *Rollout) String() string {
	if r.Namespace == "" {
		return "ClusterRolloutPolicy " + r.Name
	}
	return "RolloutPolicy " + r.Namespace + "/" + r.Name
}

// CompileRollout compiles the policy of a namespace, or one for all namespaces if the namespace is empty.
func CompileRollout(namespace, name string, spec *cellplanev1alpha1.RolloutPolicySpec) *Rollout {
	r := &Rollout{Namespace: namespace, Name: name, Spec: spec}
	r.selectors, _ = compileSelectors(namespace, spec.ResourceSelectors)
	for i := range spec.Stages {
		matcher, err := affinity.Compile(spec.Stages[i].Clusters)
		if err != nil && r.Invalid == nil {
			r.Invalid = fmt.Errorf("stage %s of %s: clusters: %w", spec.Stages[i].Name, r, err)
		}
		r.clusters = append(r.clusters, matcher)
	}
	return r
}

// Stages returns the stages of the policy and the numbers of those that clusters belong to. Clusters of no stage belong to a last one.
func (r *Rollout) Stages(clusters []*clusterv1alpha1.Cluster) (policy stages.Policy, of []int) {
	of = make([]int, len(clusters))
	sizes := make([]int, len(r.clusters)+1)
	for i, cluster := range clusters {
		of[i] = slices.IndexFunc(r.clusters, func(m affinity.Matcher) bool { return m.Matches(cluster) })
		if of[i] < 0 {
			of[i] = len(r.clusters)
		}
		sizes[of[i]]++
	}
	for i := range r.Spec.Stages {
		stage := &r.Spec.Stages[i]
		compiled := stages.Stage{Name: stage.Name, Approval: stage.Approval, AtOnce: atOnce(stage.MaxClusters, sizes[i])}
		if stage.Soak != nil {
			compiled.Soak = stage.Soak.Duration
		}
		policy.Stages = append(policy.Stages, compiled)
	}
	policy.Stages = append(policy.Stages, stages.Stage{Name: "of all other clusters"})
	if r.Spec.Failure != nil {
		policy.Tolerated = int(r.Spec.Failure.ToleratedClusters)
	}
	return policy, of
}

// atOnce resolves how many clusters are updated at the same time; 0 means all.
func atOnce(limit *intstr.IntOrString, size int) int {
	if limit == nil || size == 0 {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, size, true)
	if err != nil {
		return 1 // the API refuses it; the narrowest reading is safe
	}
	return max(1, n)
}

// Rollouts are the rollout policies of a cell, by namespace.
type Rollouts struct {
	mu sync.RWMutex
	of map[string]map[string]*Rollout
}

// Set adds or replaces a policy and returns the one before, nil if there was none.
func (r *Rollouts) Set(policy *Rollout) (old *Rollout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]map[string]*Rollout{}
	}
	in := r.of[policy.Namespace]
	if in == nil {
		in = map[string]*Rollout{}
		r.of[policy.Namespace] = in
	}
	old = in[policy.Name]
	in[policy.Name] = policy
	return old
}

// Unset removes a policy and returns it, nil if there was none.
func (r *Rollouts) Unset(namespace, name string) (old *Rollout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.of[namespace]
	old = in[name]
	if delete(in, name); len(in) == 0 {
		delete(r.of, namespace)
	}
	return old
}

// Choose returns the policy of a workload, nil if none selects it. The best policy of the namespace comes before the best one for all.
func (r *Rollouts) Choose(subject *Subject) *Rollout {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if best := bestRollout(r.of[subject.Namespace], subject); best != nil {
		return best
	}
	return bestRollout(r.of[""], subject)
}

func bestRollout(policies map[string]*Rollout, subject *Subject) *Rollout {
	var best *Rollout
	var bestMatch narrowness
	for _, policy := range policies {
		match := policy.match(subject)
		if match != selectsNothing && (best == nil || policy.better(match, best, bestMatch)) {
			best, bestMatch = policy, match
		}
	}
	return best
}

func (r *Rollout) better(match narrowness, other *Rollout, otherMatch narrowness) bool {
	return cmp.Or(cmp.Compare(r.Spec.Priority, other.Spec.Priority), cmp.Compare(match, otherMatch), cmp.Compare(other.Name, r.Name)) > 0
}

// Selects reports whether the policy selects a workload. The nil policy selects none.
func (r *Rollout) Selects(subject *Subject) bool {
	return r != nil && r.match(subject) != selectsNothing
}
