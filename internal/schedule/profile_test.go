package schedule

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// drawProfiled draws a scenario with profiles and replicas divided by capacity.
func drawProfiled(t *rapid.T) (scenario, map[string]*cellplanev1alpha1.ClusterProfile) {
	w := drawWorld(t)
	w.request.Spec.Placement = &policyv1alpha1.Placement{ReplicaScheduling: rapid.SampledFrom([]*policyv1alpha1.ReplicaSchedulingStrategy{
		{ReplicaSchedulingType: "Divided", ReplicaDivisionPreference: "Aggregated"},
		{ReplicaSchedulingType: "Divided", WeightPreference: &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas}},
	}).Draw(t, "division")}
	w.request.Spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	facts, growth := map[string]*cellplanev1alpha1.ClusterProfile{}, map[string]int32{}
	var profiles []*cellplanev1alpha1.ClusterProfile
	for _, cluster := range w.clusters {
		profile := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: cluster.Name}}
		profile.Spec.Price = &cellplanev1alpha1.ClusterPrice{PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: *resource.NewQuantity(int64(rapid.IntRange(0, 3).Draw(t, "price")), resource.DecimalSI)}}
		if rapid.Bool().Draw(t, "elastic") {
			profile.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{Name: "g", MaxNodes: 10}}}
			growth[cluster.Name] = rapid.Int32Range(0, w.capacity[cluster.Name]-w.held(cluster.Name)).Draw(t, "growth")
		}
		facts[cluster.Name] = profile
		profiles = append(profiles, profile)
	}
	w.request.Growth = func(cluster *clusterv1alpha1.Cluster, _ *workv1alpha2.ResourceBindingSpec) int32 {
		return growth[cluster.Name]
	}
	w.request.Snapshot = Compile(w.clusters, profiles...)
	w.request.Profile = drawPreferences(t)
	w.request.Progress = Progress{Now: time.Unix(1e6, 0), Ready: rapid.Int32Range(0, w.request.Spec.Replicas).Draw(t, "ready")}
	return w, facts
}

func drawPreferences(t *rapid.T) *cellplanev1alpha1.SchedulingProfileSpec {
	pace := cellplanev1alpha1.Pace{StepPercent: rapid.Int32Range(1, 100).Draw(t, "step"), MaxUnavailablePercent: rapid.Int32Range(0, 100).Draw(t, "unavailable"), Interval: metav1.Duration{Duration: time.Minute}}
	profile := &cellplanev1alpha1.SchedulingProfileSpec{
		Sites: &cellplanev1alpha1.SitePreferences{
			GroupBy: rapid.SampledFrom([]cellplanev1alpha1.SiteField{"Cluster", "Zone", "Region", "Provider"}).Draw(t, "site"),
			Order:   rapid.SampledFrom([]cellplanev1alpha1.SiteOrder{"AsPlaced", "CheapestThatFits"}).Draw(t, "order"),
		},
		Clusters: &cellplanev1alpha1.ClusterChoice{GatherPending: rapid.Bool().Draw(t, "gather")},
	}
	if rapid.Bool().Draw(t, "burst") {
		profile.Sites.Burst = &cellplanev1alpha1.Burst{}
		if rapid.Bool().Draw(t, "comeBack") {
			profile.Sites.Burst.ComeBack = &pace
		}
	}
	if rapid.Bool().Draw(t, "drain") {
		profile.Sites.Drain = &cellplanev1alpha1.Drain{Sites: []string{"r1", "p1", "z1", "c00"}, Pace: pace}
	}
	return profile
}

// TestProfiles checks for every profile: all replicas are assigned, no cluster gets more than its capacity unless
// it can grow, and moves stay within the pace.
func TestProfiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, facts := drawProfiled(t)
		result, err := Plan(w.request, nil)
		if err != nil {
			return
		}
		waits, total, changed := false, int32(0), int32(0)
		for _, note := range result.Notes {
			waits = waits || strings.Contains(note, "pending in cluster")
		}
		over := 0
		for _, target := range result.Clusters {
			total += target.Replicas
			if target.Replicas > w.capacity[target.Name] && target.Replicas > w.held(target.Name) {
				if over++; !waits || facts[target.Name].Spec.Elasticity == nil {
					t.Fatalf("%s has %d replicas with capacity for %d", target.Name, target.Replicas, w.capacity[target.Name])
				}
			}
			changed += max(0, target.Replicas-w.held(target.Name))
		}
		if total != w.request.Spec.Replicas {
			t.Fatalf("%d replicas assigned, want %d", total, w.request.Spec.Replicas)
		}
		if over > 1 {
			t.Fatalf("replicas are pending in %d clusters", over)
		}
		w.checkPace(t, result, changed)
		again, _ := Plan(w.request, nil)
		if describe(result) != describe(again) {
			t.Fatalf("first %s, then %s", describe(result), describe(again))
		}
	})
}

// checkPace compares the new replicas of all clusters with the missing and the moved ones.
func (w *scenario) checkPace(t *rapid.T, result Result, changed int32) {
	before := int32(0)
	for _, target := range w.request.Spec.Clusters {
		before += target.Replicas
	}
	replicas := w.request.Spec.Replicas
	if left := w.leftDrained(result); w.request.Profile.Sites.Drain != nil && left > max(0, before-replicas)+result.Moved {
		t.Fatalf("%d replicas left drained sites, %d were in excess and %d moved by pace", left, before-replicas, result.Moved)
	}
	if w.request.Fresh {
		return
	}
	if missing := max(0, replicas-before); changed > missing+result.Moved {
		t.Fatalf("%d replicas are new, %d were missing and %d moved by pace", changed, missing, result.Moved)
	}
	if result.Moved == 0 {
		return
	}
	// Drain and burst use the same pace in this test.
	var pace *cellplanev1alpha1.Pace
	if w.request.Profile.Sites.Drain != nil {
		pace = &w.request.Profile.Sites.Drain.Pace
	} else {
		pace = w.request.Profile.Sites.Burst.ComeBack
	}
	step := (replicas*pace.StepPercent + 99) / 100
	lacking := replicas - w.request.Progress.Ready + result.Moved
	if result.Moved > step || lacking > max(1, replicas*pace.MaxUnavailablePercent/100) {
		t.Fatalf("%d of %d replicas move with %d ready at pace %+v", result.Moved, replicas, w.request.Progress.Ready, pace)
	}
}

// leftDrained counts the replicas that a decision removes from drained sites.
func (w *scenario) leftDrained(result Result) int32 {
	c := newCycle(&w.request, w.request.Snapshot)
	left := int32(0)
	for i := range c.candidates {
		at := &c.candidates[i]
		if !c.draining(at) {
			continue
		}
		now := int32(0)
		for _, target := range result.Clusters {
			if target.Name == at.cluster.Name {
				now = target.Replicas
			}
		}
		left += max(0, at.assigned-now)
	}
	return left
}

// TestDrainEnds applies decisions until the site is empty and checks the size of each step.
func TestDrainEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var clusters []*clusterv1alpha1.Cluster
		for _, line := range []string{"old1 region=old", "old2 region=old", "new1 region=new", "new2 region=new"} {
			words := strings.Fields(line)
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
			cluster.Spec.Region = strings.TrimPrefix(words[1], "region=")
			clusters = append(clusters, cluster)
		}
		replicas := rapid.Int32Range(2, 60).Draw(t, "replicas")
		spec := &workv1alpha2.ResourceBindingSpec{Replicas: replicas, Placement: &policyv1alpha1.Placement{ReplicaScheduling: byAvailable()}}
		first := rapid.Int32Range(1, replicas-1).Draw(t, "first")
		spec.Clusters = []workv1alpha2.TargetCluster{{Name: "old1", Replicas: first}, {Name: "old2", Replicas: replicas - first}}
		drain := &cellplanev1alpha1.Drain{Sites: []string{"old"}, Pace: cellplanev1alpha1.Pace{StepPercent: rapid.Int32Range(1, 50).Draw(t, "step"), MaxUnavailablePercent: rapid.Int32Range(1, 50).Draw(t, "unavailable")}}
		request := Request{
			Spec: spec, Snapshot: Compile(clusters), Profile: &cellplanev1alpha1.SchedulingProfileSpec{Sites: &cellplanev1alpha1.SitePreferences{Drain: drain}},
			Estimators: []Estimator{func(*clusterv1alpha1.Cluster, *workv1alpha2.ResourceBindingSpec) int32 { return 100 }},
			Progress:   Progress{Now: time.Unix(1e6, 0), Ready: replicas},
		}
		for steps := int32(0); ; steps++ {
			result, err := Plan(request, nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Moved == 0 {
				if result.Again != 0 {
					t.Fatalf("nothing moved, but the next decision is due after %s", result.Again)
				}
				break
			}
			if steps > replicas {
				t.Fatalf("%d steps for %d replicas", steps, replicas)
			}
			spec.Clusters = result.Clusters
			request.Progress.MovedAt = request.Progress.Now
			request.Progress.Now = request.Progress.Now.Add(max(result.Again, time.Second))
		}
		for _, target := range spec.Clusters {
			if strings.HasPrefix(target.Name, "old") {
				t.Fatalf("%s still has %d replicas", target.Name, target.Replicas)
			}
		}
	})
}

func TestHourlyPrice(t *testing.T) {
	profile := &cellplanev1alpha1.ClusterProfile{}
	profile.Spec.Price = &cellplanev1alpha1.ClusterPrice{
		PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("40m"), corev1.ResourceMemory: resource.MustParse("5m")},
		Shares:  []cellplanev1alpha1.PurchaseShare{{Option: "Reserved", Percent: 50, PricePercent: ptr.To(int32(0))}, {Option: "Spot", Percent: 10, PricePercent: ptr.To(int32(50))}},
	}
	spec := &workv1alpha2.ResourceBindingSpec{Replicas: 1, ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("4Gi"),
	}}}
	// (0.5 × 0.04 + 4 × 0.005), half of it free, a tenth at half price and the rest at the list price.
	if got, want := HourlyPrice(profile, spec), 0.04*0.45; got < want-1e-9 || got > want+1e-9 {
		t.Errorf("price = %v, want %v", got, want)
	}
	if got := HourlyPrice(nil, spec); got != 0 {
		t.Errorf("price = %v without a profile", got)
	}
}
