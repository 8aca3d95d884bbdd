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

// promises is the guard that reserves room in the ledgers of clusters before a decision is written.
type promises struct {
	cell     *cell.Cell
	store    *ledger.Store
	profiles *profiles
	pods     *pods
}

// Admit reserves what a decision needs more than the one before, and gives back what it needs less. Where capacity decides,
// room that has gone in the meantime means that the decision must be made anew. Where it does not, the user wants the
// replicas there, room or not, and what can be reserved is.
func (p *promises) Admit(ctx context.Context, before, after *workv1alpha2.ResourceBinding) (Hold, *schedule.Failure, error) {
	claims := p.claims(before, after)
	if len(claims) == 0 {
		return nil, nil, nil
	}
	err := p.store.Reserve(ctx, claims)
	refusal := &ledger.Refusal{}
	switch {
	case err == nil:
		return &promise{p.store, claims}, nil, nil
	case !errors.As(err, &refusal):
		return nil, nil, err
	case ByCapacity(&after.Spec):
		return nil, nil, &outdatedError{refusal}
	default:
		return nil, nil, nil
	}
}

// outdatedError is why a decision must be made anew: what it counted on is gone.
type outdatedError struct{ why *ledger.Refusal }

// Error says what is gone.
func (o *outdatedError) Error() string { return o.why.Error() }

// claims compares two decisions.
func (p *promises) claims(before, after *workv1alpha2.ResourceBinding) []ledger.Claim {
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
		pod, err := simulate.FromComponent(component.ReplicaRequirements)
		if err != nil {
			continue // no API server would take such a pod
		}
		eachCluster(was, spec.Clusters, func(cluster string, earlier, now *workv1alpha2.TargetCluster) {
			claim(cluster, component.Name, shareOf(now, component.Name), shareOf(earlier, component.Name), pod)
		})
	}
	return claims
}

// eachCluster calls a function for every cluster of two decisions; one that is missing has no replicas.
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

// ByCapacity tells whether the room of clusters decides where replicas go.
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

// pods know what replicas of bindings ask for. Templates are taken apart once.
type pods struct {
	cell  *cell.Cell
	known *lru.Cache // template → knownPod
}

// knownPod is the pod of one version of a template.
type knownPod struct {
	version string
	pod     *simulate.Pod
}

// rememberedPods is of how many templates the pods are kept.
const rememberedPods = 10000

// of returns what a replica of a binding asks for: all that its pod template says where there is one, else what the
// binding knows. Nil means that nobody can tell.
func (p *pods) of(binding *workv1alpha2.ResourceBinding) *simulate.Pod {
	if pod := p.ofTemplate(&binding.Spec.Resource); pod != nil {
		return pod
	}
	pod, err := simulate.FromRequirements(binding.Spec.ReplicaRequirements)
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

// promise is room that is reserved. Once the decision is written it ends by itself, when the pods run or it expires.
type promise struct {
	store  *ledger.Store
	claims []ledger.Claim
}

// Commit implements Hold.
func (p *promise) Commit(*workv1alpha2.ResourceBinding) {}

// releasePatience is how long giving back may take; what cannot be given back expires.
const releasePatience = 10 * time.Second

// Release implements Hold.
func (p *promise) Release() {
	opposite := slices.Clone(p.claims)
	for i := range opposite {
		opposite[i].Total, opposite[i].More = opposite[i].Total-opposite[i].More, -opposite[i].More
	}
	ctx, cancel := context.WithTimeout(context.Background(), releasePatience)
	defer cancel()
	_ = p.store.Reserve(ctx, opposite) // what cannot be given back expires
}
