package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// scenario is a randomly drawn input.
type scenario struct {
	clusters []*clusterv1alpha1.Cluster
	request  Request
	// capacity is the number of replicas each cluster can hold, including those it holds already.
	capacity map[string]int32
}

func drawWorld(t *rapid.T) scenario {
	w := scenario{capacity: map[string]int32{}}
	for i := range rapid.IntRange(1, 12).Draw(t, "clusters") {
		name := fmt.Sprintf("c%02d", i)
		cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		cluster.Spec.Provider = rapid.SampledFrom([]string{"p1", "p2"}).Draw(t, "provider")
		cluster.Spec.Region = rapid.SampledFrom([]string{"r1", "r2", "r3", ""}).Draw(t, "region")
		cluster.Spec.Zones = rapid.SampledFrom([][]string{{"z1"}, {"z2"}, {"z3"}, {"z1", "z2"}, nil}).Draw(t, "zones")
		cluster.Labels["rack"] = rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "rack")
		w.clusters = append(w.clusters, cluster)
		w.capacity[name] = rapid.Int32Range(0, 30).Draw(t, "capacity")
	}
	w.request = Request{Spec: &workv1alpha2.ResourceBindingSpec{
		Replicas:  rapid.Int32Range(1, 120).Draw(t, "replicas"),
		Placement: drawPlacement(t),
	}, UID: types.UID(rapid.StringMatching(`[a-f0-9]{4}`).Draw(t, "uid")), Explain: true, Fresh: rapid.Bool().Draw(t, "fresh")}
	for _, cluster := range w.clusters {
		if held := rapid.Int32Range(-20, 20).Draw(t, "held"); held > 0 && w.capacity[cluster.Name] > 0 {
			w.request.Spec.Clusters = append(w.request.Spec.Clusters, workv1alpha2.TargetCluster{
				Name: cluster.Name, Replicas: min(held, w.capacity[cluster.Name]),
			})
		}
	}
	w.request.Estimators = []Estimator{w.estimate}
	return w
}

func drawPlacement(t *rapid.T) *policyv1alpha1.Placement {
	placement := &policyv1alpha1.Placement{ReplicaScheduling: rapid.SampledFrom([]*policyv1alpha1.ReplicaSchedulingStrategy{
		nil,
		{ReplicaSchedulingType: "Divided"},
		{ReplicaSchedulingType: "Divided", ReplicaDivisionPreference: "Aggregated"},
		{ReplicaSchedulingType: "Divided", WeightPreference: &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas}},
	}).Draw(t, "strategy")}
	for range rapid.IntRange(0, 3).Draw(t, "constraints") {
		constraint := rapid.SampledFrom([]policyv1alpha1.SpreadConstraint{
			{SpreadByField: "cluster"}, {SpreadByField: "region"}, {SpreadByField: "zone"}, {SpreadByField: "provider"}, {SpreadByLabel: "rack"},
		}).Draw(t, "constraint")
		constraint.MinGroups = rapid.IntRange(0, 4).Draw(t, "min")
		constraint.MaxGroups = rapid.IntRange(0, 5).Draw(t, "max")
		placement.SpreadConstraints = append(placement.SpreadConstraints, constraint)
	}
	return placement
}

func (w *scenario) held(cluster string) int32 {
	for _, target := range w.request.Spec.Clusters {
		if target.Name == cluster {
			return target.Replicas
		}
	}
	return 0
}

func (w *scenario) estimate(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
	return max(0, w.capacity[cluster.Name]-w.held(cluster.Name))
}

func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		result, err := Plan(w.request, w.clusters)
		w.checkOrder(t, result, err)
		if err != nil {
			var failure *Failure
			if !errors.As(err, &failure) || failure.Message == "" || failure.Reason == "" {
				t.Fatalf("failure without a reason: %#v", err)
			}
			return
		}
		w.checkSums(t, result)
		w.checkSpread(t, result)
		w.checkSteady(t, result)
		w.checkRepeated(t, result)
	})
}

// checkOrder expects the same result for another order of clusters and for a compiled snapshot.
func (w *scenario) checkOrder(t *rapid.T, result Result, err error) {
	shuffled := slices.Clone(w.clusters)
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 0))
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	compiled := w.request
	compiled.Snapshot = Compile(shuffled)
	for range 2 {
		again, errAgain := Plan(compiled, nil)
		if diff := cmp.Diff(result, again); diff != "" {
			t.Fatalf("result for another order of clusters: %s", diff)
		}
		if fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("error for another order of clusters: %v, want %v", errAgain, err)
		}
	}
}

func (w *scenario) checkSums(t *rapid.T, result Result) {
	strategy, sum := strategyOf(w.request.Spec.Placement), int32(0)
	for _, target := range result.Clusters {
		sum += target.Replicas
		if strategy == duplicated && target.Replicas != w.request.Spec.Replicas {
			t.Fatalf("%s has %d replicas", target.Name, target.Replicas)
		}
		if strategy.byCapacity() && target.Replicas > w.capacity[target.Name] {
			t.Fatalf("%s has %d replicas with capacity for %d", target.Name, target.Replicas, w.capacity[target.Name])
		}
	}
	if strategy != duplicated && sum != w.request.Spec.Replicas {
		t.Fatalf("%d replicas assigned", sum)
	}
}

// checkSpread counts the groups of the selected clusters. There may be as many clusters as other constraints need groups.
func (w *scenario) checkSpread(t *rapid.T, result Result) {
	if strategyOf(w.request.Spec.Placement) == static {
		return
	}
	constraints := w.request.Spec.Placement.SpreadConstraints
	for _, constraint := range constraints {
		most := constraint.MaxGroups
		if constraint.SpreadByField == "cluster" && most > 0 {
			for _, other := range constraints {
				most = max(most, other.MinGroups)
			}
		}
		groups := map[string]bool{}
		for i, verdict := range result.Attempts[0].Clusters {
			if !verdict.Selected {
				continue
			}
			cluster := w.clusters[i]
			switch {
			case constraint.SpreadByLabel != "":
				groups[cluster.Labels[constraint.SpreadByLabel]] = true
			case constraint.SpreadByField == "provider":
				groups[cluster.Spec.Provider] = true
			case constraint.SpreadByField == "region":
				groups[cluster.Spec.Region] = true
			case constraint.SpreadByField == "zone":
				for _, zone := range cluster.Spec.Zones {
					groups[zone] = true
				}
			default:
				groups[cluster.Name] = true
			}
		}
		if len(groups) < max(1, constraint.MinGroups) || most > 0 && len(groups) > most {
			t.Fatalf("%+v: %v", constraint, groups)
		}
	}
}

// checkSteady expects that only missing or excess replicas move if none had to leave its cluster.
func (w *scenario) checkSteady(t *rapid.T, result Result) {
	if !strategyOf(w.request.Spec.Placement).byCapacity() || w.request.Fresh {
		return
	}
	before, moved := int32(0), int32(0)
	for _, verdict := range result.Attempts[0].Clusters {
		held := w.held(verdict.Cluster)
		if held > 0 && !verdict.Selected {
			return
		}
		before += held
		moved += max(held-verdict.Replicas, verdict.Replicas-held)
	}
	if delta := w.request.Spec.Replicas - before; moved != max(delta, -delta) {
		t.Fatalf("%d replicas moved for a difference of %d", moved, delta)
	}
}

// checkRepeated expects the same result when planning again after applying it. With divided replicas, clusters
// without replicas are not recorded, so groups of several fields cannot be recognized.
func (w *scenario) checkRepeated(t *rapid.T, result Result) {
	placement := w.request.Spec.Placement
	if strategyOf(placement).byCapacity() && len(newSpread(placement.SpreadConstraints).fields) > 1 {
		return
	}
	for _, target := range result.Clusters {
		if target.Replicas > w.capacity[target.Name] {
			return // replicas that do not fit change the estimated capacity
		}
	}
	carriedOut := *w.request.Spec
	carriedOut.Clusters = result.Clusters
	after := scenario{clusters: w.clusters, request: w.request, capacity: w.capacity}
	after.request.Spec, after.request.Fresh = &carriedOut, false
	after.request.Estimators = []Estimator{after.estimate}
	again, err := Plan(after.request, after.clusters)
	if err != nil {
		t.Fatalf("planned again: %v", err)
	}
	if diff := cmp.Diff(result.Clusters, again.Clusters); diff != "" {
		t.Fatalf("planned again: %s", diff)
	}
}

// TestAggregatedUsesFewest compares with the minimum number of clusters with enough capacity.
func TestAggregatedUsesFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.request.Spec.Clusters = nil
		w.request.Spec.Placement = &policyv1alpha1.Placement{ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: "Divided", ReplicaDivisionPreference: "Aggregated",
		}}
		result, err := Plan(w.request, w.clusters)
		var capacities []int32
		total := int32(0)
		for _, capacity := range w.capacity {
			capacities = append(capacities, capacity)
			total += capacity
		}
		if (err != nil) != (total < w.request.Spec.Replicas) {
			t.Fatalf("capacity for %d: %v", total, err)
		}
		if err != nil {
			return
		}
		slices.Sort(capacities)
		fewest, left := 0, w.request.Spec.Replicas
		for ; left > 0; fewest++ {
			left -= capacities[len(capacities)-1-fewest]
		}
		if len(result.Clusters) > fewest {
			t.Fatalf("%d clusters, want %d", len(result.Clusters), fewest)
		}
	})
}
