package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// reservations is the guard that reserves capacity in the clusters' ledgers before a decision is written.
type reservations struct {
	cell     *cell.Cell
	store    *ledger.Store
	profiles *profiles
	pods     *pods
}

// Admit reserves what a decision needs in addition to the previous one and releases what it no longer needs. If
// capacity decides the placement and a reservation is refused, the decision must be repeated. Otherwise the user
// wants the replicas in these clusters regardless of capacity, and a refused reservation is ignored.
func (p *reservations) Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (Hold, *schedule.Failure, error) {
	claims := p.claims(before, after)
	if len(claims) == 0 {
		return nil, nil, nil
	}
	err := p.store.Reserve(ctx, claims)
	refusal := &ledger.Refusal{}
	switch {
	case err == nil:
		return &reservation{p.store, claims}, nil, nil
	case !errors.As(err, &refusal):
		return nil, nil, err
	case ByCapacity(&after.Spec):
		return nil, nil, Outdated(refusal.Error() + "; other bindings took the capacity first")
	default:
		return nil, nil, nil
	}
}

// outdatedError means that a decision must be repeated: what it relied on has changed.
type outdatedError struct{ why string }

// Outdated returns the error by which a guard has a decision repeated.
func Outdated(why string) error { return &outdatedError{why} }

// Error implements error.
func (o *outdatedError) Error() string { return o.why }

// claims returns the differences between two decisions.
func (p *reservations) claims(before, after *workv1alpha2.ResourceBinding) []ledger.Claim {
	spec := &after.Spec
	if spec.Replicas <= 0 && len(spec.Components) == 0 && (before == nil || before.Spec.Replicas <= 0 && len(before.Spec.Components) == 0) {
		return nil
	}
	var was []workv1alpha2.TargetCluster
	if before != nil {
		was = before.Spec.Clusters
	}
	if sameTargets(was, spec.Clusters) {
		return nil
	}
	workload := workloadOf(after)
	var claims []ledger.Claim
	claim := func(cluster, component string, total, earlier int32, pod *simulate.Pod) {
		if total != earlier && pod != nil {
			claims = append(claims, ledger.Claim{
				Cluster: cluster, Workload: workload, Component: component, Total: total, More: total - earlier, Pod: pod, Waits: p.waits(after, cluster),
			})
		}
	}
	if len(spec.Components) == 0 {
		pod := p.pods.of(after)
		eachCluster(was, spec.Clusters, func(cluster string, earlier, now *workv1alpha2.TargetCluster) {
			claim(cluster, "", now.Replicas, earlier.Replicas, pod)
		})
		return claims
	}
	for i := range spec.Components {
		component := &spec.Components[i]
		pod, err := simulate.FromComponent(spec.Resource.Namespace, component.ReplicaRequirements)
		if err != nil {
			continue // no API server accepts such a pod
		}
		eachCluster(was, spec.Clusters, func(cluster string, earlier, now *workv1alpha2.TargetCluster) {
			claim(cluster, component.Name, shareOf(now, component.Name), shareOf(earlier, component.Name), pod)
		})
	}
	return claims
}

// eachCluster calls f for each cluster of two decisions. A missing cluster counts as one without replicas.
func eachCluster(before, after []workv1alpha2.TargetCluster, f func(cluster string, before, after *workv1alpha2.TargetCluster)) {
	find := func(targets []workv1alpha2.TargetCluster, name string) *workv1alpha2.TargetCluster {
		if i := slices.IndexFunc(targets, func(t workv1alpha2.TargetCluster) bool { return t.Name == name }); i >= 0 {
			return &targets[i]
		}
		return &workv1alpha2.TargetCluster{Name: name}
	}
	for i := range after {
		f(after[i].Name, find(before, after[i].Name), &after[i])
	}
	for i := range before {
		if !slices.ContainsFunc(after, func(t workv1alpha2.TargetCluster) bool { return t.Name == before[i].Name }) {
			f(before[i].Name, &before[i], &workv1alpha2.TargetCluster{Name: before[i].Name})
		}
	}
}

func shareOf(target *workv1alpha2.TargetCluster, component string) int32 {
	for i := range target.Components {
		if target.Components[i].Name == component {
			return target.Components[i].Replicas
		}
	}
	return 0
}

func workloadOf(binding *workv1alpha2.ResourceBinding) cellplanev1alpha1.WorkloadReference {
	ref := &binding.Spec.Resource
	return cellplanev1alpha1.WorkloadReference{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// ByCapacity reports whether the free capacity of clusters decides where replicas go.
func ByCapacity(spec *workv1alpha2.ResourceBindingSpec) bool {
	if len(spec.Components) > 0 {
		return true
	}
	if spec.Placement == nil || spec.Placement.ReplicaScheduling == nil || !schedule.Divided(spec.Placement) {
		return false
	}
	strategy := spec.Placement.ReplicaScheduling
	return strategy.ReplicaDivisionPreference == policyv1alpha1.ReplicaDivisionPreferenceAggregated ||
		strategy.WeightPreference != nil && strategy.WeightPreference.DynamicWeight != ""
}

// pods returns the pod requirements of bindings. It caches them by template version.
type pods struct {
	cell  *cell.Cell
	known *lru.Cache // template → knownPod
}

// knownPod is the pod of one version of a template.
type knownPod struct {
	version string
	pod     *simulate.Pod
}

// podCacheSize is the number of templates whose pods are cached.
const podCacheSize = 10000

// of returns the pod of a replica: from the pod template if there is one, otherwise from the requirements in the
// binding. It returns nil if the requirements cannot be parsed.
func (p *pods) of(binding *workv1alpha2.ResourceBinding) *simulate.Pod {
	if pod := p.ofTemplate(&binding.Spec.Resource); pod != nil {
		return pod
	}
	pod, err := simulate.FromRequirements(binding.Spec.Resource.Namespace, binding.Spec.ReplicaRequirements)
	if err != nil {
		return nil
	}
	return pod
}

// ofTemplate returns the pod of a built-in workload, nil for anything else.
func (p *pods) ofTemplate(ref *workv1alpha2.ObjectReference) *simulate.Pod {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != "apps" && gv.Group != "batch" {
		return nil
	}
	key := cell.TemplateKey{GroupVersionKind: gv.WithKind(ref.Kind), Key: cell.Key{Namespace: ref.Namespace, Name: ref.Name}}
	t := p.cell.Templates.Get(key)
	if t == nil {
		return nil
	}
	if known, ok := p.known.Get(key); ok && known.(knownPod).version == t.Version {
		return known.(knownPod).pod
	}
	workload, err := t.Object()
	if err != nil {
		return nil
	}
	pod, ok, err := simulate.FromWorkload(ref.Namespace, workload)
	if err != nil || !ok {
		return nil
	}
	p.known.Add(key, knownPod{t.Version, pod})
	return pod
}

// reservation is reserved capacity. After the decision is written it ends when the pods run or when it expires.
type reservation struct {
	store  *ledger.Store
	claims []ledger.Claim
}

// Commit implements Hold.
func (p *reservation) Commit(*workv1alpha2.ResourceBinding) {}

// releaseTimeout bounds the release of a reservation. A reservation that cannot be released expires.
const releaseTimeout = 10 * time.Second

// Release implements Hold.
func (p *reservation) Release() {
	opposite := slices.Clone(p.claims)
	for i := range opposite {
		opposite[i].Total, opposite[i].More = opposite[i].Total-opposite[i].More, -opposite[i].More
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	_ = p.store.Reserve(ctx, opposite) // expires if it cannot be released
}
