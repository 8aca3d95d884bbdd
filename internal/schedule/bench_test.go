package schedule

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// BenchmarkPlan plans with a compiled snapshot, as the engine does.
func BenchmarkPlan(b *testing.B) {
	placements := []struct {
		name      string
		placement policyv1alpha1.Placement
	}{
		{"dynamic", policyv1alpha1.Placement{ReplicaScheduling: byAvailable()}},
		{"dynamic-spread", policyv1alpha1.Placement{ReplicaScheduling: byAvailable(), SpreadConstraints: []policyv1alpha1.SpreadConstraint{
			{SpreadByField: "region", MinGroups: 2, MaxGroups: 4}, {SpreadByField: "cluster", MinGroups: 3, MaxGroups: 10},
		}}},
		{"duplicated-zones", policyv1alpha1.Placement{SpreadConstraints: []policyv1alpha1.SpreadConstraint{
			{SpreadByField: "provider", MinGroups: 2}, {SpreadByField: "zone", MinGroups: 3, MaxGroups: 6}, {SpreadByField: "cluster", MaxGroups: 6},
		}}},
	}
	for _, count := range []int{100, 500, 2000} {
		snapshot := Compile(manyClusters(count))
		for _, test := range placements {
			b.Run(fmt.Sprintf("%s/clusters=%d", test.name, count), func(b *testing.B) {
				placement := test.placement
				placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
				request := benchRequest(&placement)
				request.Snapshot = snapshot
				b.ReportAllocs()
				for i := range b.N {
					request.UID = types.UID(fmt.Sprint(i))
					if _, err := Plan(request, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}

// BenchmarkCompile compiles a snapshot.
func BenchmarkCompile(b *testing.B) {
	for _, count := range []int{100, 500, 2000} {
		clusters := manyClusters(count)
		b.Run(fmt.Sprintf("clusters=%d", count), func(b *testing.B) {
			for b.Loop() {
				Compile(clusters)
			}
		})
	}
}

func byAvailable() *policyv1alpha1.ReplicaSchedulingStrategy {
	return &policyv1alpha1.ReplicaSchedulingStrategy{
		ReplicaSchedulingType: "Divided",
		WeightPreference:      &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas},
	}
}

func benchRequest(placement *policyv1alpha1.Placement) Request {
	return Request{Spec: &workv1alpha2.ResourceBindingSpec{
		Resource: workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment"},
		Replicas: 1000,
		ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}},
		Placement: placement,
	}}
}

// manyClusters returns clusters of a thousand nodes in twenty regions with three zones each.
func manyClusters(count int) []*clusterv1alpha1.Cluster {
	var clusters []*clusterv1alpha1.Cluster
	for i := range count {
		region := fmt.Sprintf("region-%d", i%20)
		cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("member-%04d", i), Labels: map[string]string{"env": "prod", "tier": fmt.Sprint(i % 3)},
		}}
		cluster.Spec.Provider, cluster.Spec.Region = fmt.Sprintf("provider-%d", i%3), region
		cluster.Spec.Zones = []string{fmt.Sprintf("%s-%d", region, i/20%3)}
		for grade, least := range []string{"0", "1", "2", "4", "8", "16", "32", "64", "128"} {
			memory := resource.MustParse(least + "Gi")
			memory.Mul(4)
			cluster.Spec.ResourceModels = append(cluster.Spec.ResourceModels, clusterv1alpha1.ResourceModel{Grade: grade, Ranges: []clusterv1alpha1.ResourceModelRange{
				{Name: corev1.ResourceCPU, Min: resource.MustParse(least)}, {Name: corev1.ResourceMemory, Min: memory},
			}})
		}
		cluster.Status.ResourceSummary = &clusterv1alpha1.ResourceSummary{
			Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110000"), corev1.ResourceCPU: resource.MustParse("64000"), corev1.ResourceMemory: resource.MustParse("256Ti")},
			Allocated:   corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(50000+i), resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("30000")},
			AllocatableModelings: []clusterv1alpha1.AllocatableModeling{
				{Grade: 0, Count: 500}, {Grade: 3, Count: 300 + i%7}, {Grade: 6, Count: 200 - i%11},
			},
		}
		for group := range 30 {
			enablement := clusterv1alpha1.APIEnablement{GroupVersion: fmt.Sprintf("group%d.example.com/v1", group)}
			for kind := range 10 {
				enablement.Resources = append(enablement.Resources, clusterv1alpha1.APIResource{Kind: fmt.Sprintf("Kind%d", kind)})
			}
			cluster.Status.APIEnablements = append(cluster.Status.APIEnablements, enablement)
		}
		cluster.Status.APIEnablements = append(cluster.Status.APIEnablements, clusterv1alpha1.APIEnablement{
			GroupVersion: "apps/v1", Resources: []clusterv1alpha1.APIResource{{Kind: "Deployment"}},
		})
		clusters = append(clusters, cluster)
	}
	return clusters
}
