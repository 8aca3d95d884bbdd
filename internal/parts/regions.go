package parts

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
)

// place is the location and the price of a member.
type place struct {
	provider, region, zone string
	profile                cellplanev1alpha1.ClusterProfileSpec
}

// placeMembers spreads the members over two regions, to demonstrate scheduling: a data centre, and for the last member a
// cloud that is elastic and more expensive. It does not overwrite changes by users.
func (p *Parts) placeMembers(ctx context.Context, hub client.Client) error {
	count := len(p.federation.Members)
	for i, member := range p.federation.Members {
		where := home(i)
		if count > 1 && i == count-1 {
			where = cloud()
		}
		if err := placeMember(ctx, hub, member.Name(), where); err != nil {
			return fmt.Errorf("placing %s: %w", member.Name(), err)
		}
	}
	return nil
}

func placeMember(ctx context.Context, hub client.Client, name string, where place) error {
	cluster := &clusterv1alpha1.Cluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return err
	}
	if cluster.Spec.Region == "" && cluster.Spec.Provider == "" && len(cluster.Spec.Zones) == 0 {
		before := cluster.DeepCopy()
		cluster.Spec.Provider, cluster.Spec.Region, cluster.Spec.Zones = where.provider, where.region, []string{where.zone}
		if err := hub.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	profile := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: where.profile}
	if err := hub.Create(ctx, profile); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// home is a data centre with two zones.
func home(i int) place {
	return place{provider: "own", region: "home", zone: fmt.Sprintf("home-%d", i%2+1), profile: cellplanev1alpha1.ClusterProfileSpec{
		Price: price("10m", "1m"),
	}}
}

// cloud can double the default number of nodes of a member. No autoscaler runs in a local federation: pods wait for nodes
// until somebody adds them.
func cloud() place {
	return place{provider: "cloud", region: "cloud", zone: "cloud-1", profile: cellplanev1alpha1.ClusterProfileSpec{
		Price: price("40m", "5m"),
		Elasticity: &cellplanev1alpha1.ClusterElasticity{
			ScaleUpLatency: &metav1.Duration{Duration: 2 * time.Minute},
			NodeGroups: []cellplanev1alpha1.NodeGroup{{Name: "general", MaxNodes: int32(2 * local.DefaultSpec.Nodes), Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}}},
		},
	}}
}

func price(cpu, memory string) *cellplanev1alpha1.ClusterPrice {
	return &cellplanev1alpha1.ClusterPrice{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}
