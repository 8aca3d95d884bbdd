package scheduling_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// ledger creates a ledger of nodes with 4 CPUs each.
func ledger(t *testing.T, cluster string, nodes int32, change ...func(*cellplanev1alpha1.ClusterLedger)) {
	t.Helper()
	free := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceMemory: resource.MustParse("64Gi")}
	l := &cellplanev1alpha1.ClusterLedger{
		ObjectMeta: metav1.ObjectMeta{Name: cluster}, Holders: []string{"cell-a", "cell-b"}, ObservedAt: metav1.Now(),
		Classes: []cellplanev1alpha1.LedgerNodeClass{{Name: "node", Allocatable: free, Nodes: []cellplanev1alpha1.LedgerNodes{{Count: nodes, Free: free}}}},
	}
	for _, f := range change {
		f(l)
	}
	if err := hub.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Delete(context.Background(), l) })
}

// Two cells that schedule at the same time never reserve more capacity than there is, and use all of it. Released
// capacity is used by waiting workloads of either cell.
func TestNoOvercommitBetweenCells(t *testing.T) {
	const clusters, nodes, workloads, replicas = 2, 5, 15, 2 // 40 CPUs for 60
	w := newWorld(t, "a", "b")
	for _, name := range w.clusters {
		ledger(t, w.full(name), nodes)
	}
	// The other cell knows the same clusters, under the same names.
	v := &world{T: t, client: other, ns: w.ns}
	v.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}})
	for _, name := range w.clusters {
		v.join(name)
	}
	t.Cleanup(func() {
		for _, name := range v.clusters {
			_ = other.Delete(context.Background(), &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: v.full(name)}})
		}
	})
	stop := enginetest.Start(context.Background(), engine.Config{Cell: "cell-b", Config: otherConfig, HubAPI: hubConfig})
	defer stop()
	worlds := map[string]*world{"w": w, "v": v}
	var wait sync.WaitGroup
	for prefix, at := range worlds {
		at.policy(aggregated)
		for i := range workloads {
			wait.Go(func() { at.create(at.deployment(fmt.Sprintf("%s-%d", prefix, i), replicas)) })
		}
	}
	wait.Wait()

	decisions := func() (placed map[string]int32, waiting []ctrlclient.ObjectKey) {
		testenv.Eventually(t, "all workloads have a decision", func(ctx context.Context) (bool, error) {
			placed, waiting = map[string]int32{}, nil
			for _, at := range worlds {
				var list workv1alpha2.ResourceBindingList
				if err := at.client.List(ctx, &list, ctrlclient.InNamespace(at.ns)); err != nil {
					return false, err
				}
				for i := range list.Items {
					b := &list.Items[i]
					condition := meta.FindStatusCondition(b.Status.Conditions, names.BindingScheduled)
					if condition == nil || b.Status.SchedulerObservedGeneration != b.Generation {
						return false, fmt.Errorf("%s has no decision", b.Name)
					}
					if condition.Status != metav1.ConditionTrue {
						waiting = append(waiting, keyOf(b))
					}
					for _, target := range b.Spec.Clusters {
						placed[target.Name] += target.Replicas
					}
				}
				if len(list.Items) == 0 {
					return false, nil
				}
			}
			total := int32(0)
			for cluster, count := range placed {
				if total += count; count > nodes*4 {
					t.Fatalf("cluster %s has %d replicas and capacity for %d", cluster, count, nodes*4)
				}
			}
			return total == clusters*nodes*4, fmt.Errorf("%d replicas are placed in %v", total, placed)
		})
		return placed, waiting
	}
	_, waiting := decisions()
	if want := 2*workloads - clusters*nodes*4/replicas; len(waiting) != want {
		t.Errorf("%d workloads wait, want %d", len(waiting), want)
	}
	reserved := int32(0)
	for _, name := range w.clusters {
		l := &cellplanev1alpha1.ClusterLedger{}
		if err := hub.Get(t.Context(), ctrlclient.ObjectKey{Name: w.full(name)}, l); err != nil {
			t.Fatal(err)
		}
		for i := range l.Reservations {
			reserved += l.Reservations[i].Total
		}
	}
	if reserved != clusters*nodes*4 {
		t.Errorf("the ledgers reserve %d replicas, want %d", reserved, clusters*nodes*4)
	}

	// One workload is deleted; another takes its capacity.
	var list workv1alpha2.ResourceBindingList
	if err := w.client.List(t.Context(), &list, ctrlclient.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if b := &list.Items[i]; len(b.Spec.Clusters) > 0 {
			if err := w.client.Delete(t.Context(), w.deployment(b.Spec.Resource.Name, 0)); err != nil {
				t.Fatal(err)
			}
			for _, target := range b.Spec.Clusters {
				w.untilNoWork(target.Name[len(w.ns)+1:], b.Spec.Resource.Name)
			}
			// The cells are listed one after the other, so its capacity may be seen twice while it is released.
			testenv.Eventually(t, "its binding is gone", func(ctx context.Context) (bool, error) {
				err := w.client.Get(ctx, keyOf(b), b)
				return apierrors.IsNotFound(err), err
			})
			break
		}
	}
	testenv.Eventually(t, "one workload less waits", func(context.Context) (bool, error) {
		_, now := decisions()
		return len(now) == len(waiting)-1, fmt.Errorf("%d wait", len(now))
	})
}

// A workload that is not placed by capacity goes where its policy says, regardless of capacity.
func TestDuplicatedIgnoresTheLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	ledger(t, w.full("a"), 1)
	w.policy(func(*policyv1alpha1.PropagationPolicy) {})
	w.create(w.deployment("web", 50))
	w.untilPlaced("web", "a:50")
}

// A workload goes where the quota of its namespace allows it. What is reserved counts in the quota.
func TestQuotasOfMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	ledger(t, w.full("a"), 10, func(l *cellplanev1alpha1.ClusterLedger) {
		l.Quotas = []cellplanev1alpha1.LedgerQuota{{Namespace: w.ns, Left: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}}}
	})
	ledger(t, w.full("b"), 2)
	w.policy(aggregated, oneCluster)
	w.create(w.deployment("first", 5))
	w.untilPlaced("first", "a:5")
	w.create(w.deployment("second", 5))
	w.untilPlaced("second", "b:5")
}

// farButForOne moves all nodes to the zone far and adds one in the zone near.
func farButForOne(l *cellplanev1alpha1.ClusterLedger) {
	near := l.Classes[0].DeepCopy()
	near.Name, near.Labels, near.Nodes[0].Count = "near", map[string]string{corev1.LabelTopologyZone: "near"}, 1
	l.Classes[0].Labels = map[string]string{corev1.LabelTopologyZone: "far"}
	l.Classes = append(l.Classes, *near)
}

// zone selects the nodes of a zone.
func zone(name string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}
}

// A workload goes where there is capacity near its volume: the larger cluster has most of its capacity in another
// zone.
func TestZonesOfVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	ledger(t, w.full("a"), 10, farButForOne, func(l *cellplanev1alpha1.ClusterLedger) {
		l.Volumes = []cellplanev1alpha1.LedgerVolumes{{Claims: []string{w.ns + "/data"}, Reach: zone("near")}}
	})
	ledger(t, w.full("b"), 2)
	w.policy(aggregated, oneCluster)
	w.create(w.deployment("stateless", 8), w.deployment("stateful", 8, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}
	}))
	w.untilPlaced("stateless", "a:8")
	w.untilPlaced("stateful", "b:8")
}
