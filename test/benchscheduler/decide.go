package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/ledger"
	"github.com/cellplane/cellplane/internal/schedule"
	"github.com/cellplane/cellplane/internal/simulate"
)

// world is a simulated federation.
type world struct {
	snapshot *schedule.Snapshot
	accounts map[string]*ledger.Account
}

// regions is the number of regions; every tenth is a cloud.
const regions = 20

func newWorld(clusters, nodes int) *world {
	w := &world{accounts: make(map[string]*ledger.Account, clusters)}
	var members []*clusterv1alpha1.Cluster
	var profiles []*cellplanev1alpha1.ClusterProfile
	for i := range clusters {
		name, region := fmt.Sprintf("member-%04d", i), i%regions
		cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "prod"}}}
		cluster.Spec.Provider, cluster.Spec.Region = fmt.Sprint("provider-", i%3), fmt.Sprint("region-", region)
		cluster.Spec.Zones = []string{fmt.Sprintf("region-%d-%d", region, i/regions%3)}
		members = append(members, cluster)
		profile := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
		profile.Spec.Price = &cellplanev1alpha1.ClusterPrice{PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(10+region), resource.DecimalSI)}}
		if region%10 == 9 {
			profile.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{Name: "general", MaxNodes: 100}}}
		}
		profiles = append(profiles, profile)
		w.accounts[name] = ledger.Open(newLedger(name, i, nodes), nil, time.Now())
	}
	w.snapshot = schedule.Compile(members, profiles...)
	return w
}

// newLedger returns a ledger of nodes of three classes with varying free resources.
func newLedger(name string, seed, nodes int) *cellplanev1alpha1.ClusterLedger {
	l := &cellplanev1alpha1.ClusterLedger{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for class := range 3 {
		c := cellplanev1alpha1.LedgerNodeClass{Name: fmt.Sprint("class-", class), Labels: map[string]string{"zone": fmt.Sprint("z", class)}, Allocatable: size(64)}
		share := nodes / 3
		if class == 0 {
			share = nodes - 2*share
		}
		const rows = 40
		for row := range min(rows, share) {
			count := share / rows
			if row < share%rows {
				count++
			}
			if count > 0 {
				c.Nodes = append(c.Nodes, cellplanev1alpha1.LedgerNodes{Count: int32(count), Free: size(int64(1 + (row*7+seed)%60))})
			}
		}
		l.Classes = append(l.Classes, c)
	}
	return l
}

func size(cpus int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(cpus<<32, resource.BinarySI),
		corev1.ResourcePods: resource.MustParse("110"),
	}
}

// placement is one kind of placement to measure.
type placement struct {
	name    string
	policy  policyv1alpha1.Placement
	profile *cellplanev1alpha1.SchedulingProfileSpec
}

func placements() []placement {
	dynamic := &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided,
		WeightPreference:      &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas},
	}
	everywhere := &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	return []placement{
		{name: "dynamic weight", policy: policyv1alpha1.Placement{ClusterAffinity: everywhere, ReplicaScheduling: dynamic}},
		{name: "spread", policy: policyv1alpha1.Placement{ClusterAffinity: everywhere, ReplicaScheduling: dynamic, SpreadConstraints: []policyv1alpha1.SpreadConstraint{
			{SpreadByField: policyv1alpha1.SpreadByFieldRegion, MinGroups: 2, MaxGroups: 4}, {SpreadByField: policyv1alpha1.SpreadByFieldCluster, MinGroups: 3, MaxGroups: 10},
		}}},
		{name: "cheapest, burst", policy: policyv1alpha1.Placement{ClusterAffinity: everywhere, ReplicaScheduling: dynamic}, profile: &cellplanev1alpha1.SchedulingProfileSpec{
			Sites: &cellplanev1alpha1.SitePreferences{GroupBy: cellplanev1alpha1.SiteByRegion, Order: cellplanev1alpha1.SitesCheapestThatFits, Burst: &cellplanev1alpha1.Burst{}},
		}},
	}
}

// figures are the results.
type figures struct {
	perSecond float64
	p50, p99  time.Duration
}

// shapes is the number of different pods.
const shapes = 20

// decide plans for one workload after another. The pods have been simulated once before.
func (w *world) decide(p placement, duration time.Duration) (figures, error) {
	var specs []*workv1alpha2.ResourceBindingSpec
	for i := range shapes {
		specs = append(specs, &workv1alpha2.ResourceBindingSpec{
			Resource: workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment"}, Replicas: int32(10 + 5*i), Placement: &p.policy,
			ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(int64(250+50*i), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("512Mi"),
			}},
		})
		if err := w.plan(p, specs[i], i); err != nil {
			return figures{}, err
		}
	}
	var took []time.Duration
	began := time.Now()
	for i := 0; time.Since(began) < duration; i++ {
		start := time.Now()
		if err := w.plan(p, specs[i%shapes], i); err != nil {
			return figures{}, err
		}
		took = append(took, time.Since(start))
	}
	elapsed := time.Since(began)
	slices.Sort(took)
	return figures{
		perSecond: float64(len(took)) / elapsed.Seconds(),
		p50:       took[len(took)/2].Round(time.Microsecond), p99: took[len(took)*99/100].Round(time.Microsecond),
	}, nil
}

// plan decides as an engine does, including the per-binding preparation.
func (w *world) plan(p placement, spec *workv1alpha2.ResourceBindingSpec, i int) error {
	pod, err := simulate.FromRequirements(spec.Resource.Namespace, spec.ReplicaRequirements)
	if err != nil {
		return err
	}
	capacity, growth := ledger.Estimators(func(cluster string) *ledger.Account { return w.accounts[cluster] }, pod)
	_, err = schedule.Plan(schedule.Request{
		Spec: spec, UID: types.UID(fmt.Sprint(i)), Snapshot: w.snapshot, Estimators: []schedule.Estimator{capacity}, Growth: growth, Profile: p.profile,
	}, nil)
	return err
}
