package scheduling_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// probeResource exists in ledgers only, so that a workload that requests it is placed once the engine knows them.
const probeResource = "example.io/probe"

// largeNodes creates a ledger of nodes with 32 CPUs, and some that could be added.
func largeNodes(t *testing.T, cluster string, nodes, potential int32) *cellplanev1alpha1.ClusterLedger {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceMemory: resource.MustParse("256Gi"), probeResource: resource.MustParse("1")}
	class := func(name string, count int32, potential bool) cellplanev1alpha1.LedgerNodeClass {
		return cellplanev1alpha1.LedgerNodeClass{Name: name, Allocatable: size, Potential: potential, Nodes: []cellplanev1alpha1.LedgerNodes{{Count: count, Free: size}}}
	}
	l := &cellplanev1alpha1.ClusterLedger{
		ObjectMeta: metav1.ObjectMeta{Name: cluster}, Holders: []string{"cell-a", "cell-b"}, Revision: 1, ObservedAt: metav1.Now(),
		Classes: []cellplanev1alpha1.LedgerNodeClass{class("node", nodes, false)},
	}
	if potential > 0 {
		l.Classes = append(l.Classes, class("group:general", potential, true))
	}
	if err := hub.Create(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Delete(context.Background(), l) })
	return l
}

// untilLedgerKnown waits until the engine knows the ledger of a cluster, by a workload that requests probeResource.
func (w *world) untilLedgerKnown(cluster string) {
	w.Helper()
	probe := "probe-" + cluster
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: probe}}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment", Name: probe}}
	p.Spec.Placement.ClusterAffinity = w.affinity(cluster)
	aggregated(p)
	w.create(p, w.deployment(probe, 1, func(d *appsv1.Deployment) {
		one := corev1.ResourceList{probeResource: resource.MustParse("1")}
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
	}))
	w.untilPlaced(probe, cluster+":1")
}

// readExample reads the objects of an example in the documentation, in order.
func readExample(t *testing.T, path string, objects ...ctrlclient.Object) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != len(objects) {
		t.Fatalf("%s has %d objects, want %d", path, len(documents), len(objects))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict([]byte(document), objects[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// ready reports all replicas in a cluster as ready.
func (w *world) ready(name string) {
	w.Helper()
	b := w.until("it is placed", name, func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) > 0 })
	for _, target := range b.Spec.Clusters {
		w.report(strings.TrimPrefix(target.Name, w.ns+"-"), name, workv1alpha1.ResourceHealthy, fmt.Sprintf(`{"replicas":%d,"readyReplicas":%[1]d,"updatedReplicas":%[1]d,"availableReplicas":%[1]d,"observedGeneration":1}`, target.Replicas))
	}
}

// untilEventSays waits for an event about the binding of a Deployment with the given text.
func (w *world) untilEventSays(name, text string) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("an event says %q", text), func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		if err := w.client.List(ctx, &list, ctrlclient.InNamespace(w.ns)); err != nil {
			return false, err
		}
		for i := range list.Items {
			if list.Items[i].InvolvedObject.Name == name+"-deployment" && strings.Contains(list.Items[i].Message, text) {
				return true, nil
			}
		}
		return false, nil
	})
}

// The scenario of docs/examples/burst.yaml: a workload stays at home while there is capacity, bursts into the
// elastic region, leaves it first on scale-down, and returns when home has capacity again.
func TestBurstAndComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"home1", "home2", "cloud"} {
		w.join(name, func(c *clusterv1alpha1.Cluster) { c.Spec.Region = w.ns + "-" + strings.TrimRight(name, "12") })
	}
	cloud := &cellplanev1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: w.full("cloud")}}
	cloud.Spec.Price = &cellplanev1alpha1.ClusterPrice{PerHour: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse("50m")}}
	cloud.Spec.Elasticity = &cellplanev1alpha1.ClusterElasticity{NodeGroups: []cellplanev1alpha1.NodeGroup{{
		Name: "general", MaxNodes: 20, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourcePods: resource.MustParse("110")},
	}}}
	profile, policy, render := &cellplanev1alpha1.SchedulingProfile{}, &policyv1alpha1.PropagationPolicy{}, &appsv1.Deployment{}
	readExample(t, "../../docs/examples/burst.yaml", profile, policy, render)
	// Names that no other test uses.
	profile.Name, policy.Namespace, render.Namespace = w.ns, w.ns, w.ns
	policy.Annotations[names.SchedulingProfileAnnotation] = w.ns
	policy.Spec.Placement.ClusterAffinity = w.affinity()
	w.create(cloud, profile)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), cloud); _ = cell.Delete(context.Background(), profile) })
	largeNodes(t, w.full("home1"), 10, 0)
	home2 := largeNodes(t, w.full("home2"), 10, 0)
	largeNodes(t, w.full("cloud"), 10, 10)
	for _, name := range w.clusters {
		w.untilLedgerKnown(name)
	}
	w.create(policy, render)

	// 1. Home has capacity.
	w.untilPlaced("render", "home1:15 home2:15")
	w.ready("render")

	// 2. Home is full.
	scale := func(replicas int32) { w.edit(render, false, func() { render.Spec.Replicas = ptr.To(replicas) }) }
	scale(100)
	w.untilPlaced("render", "cloud:20 home1:40 home2:40")
	w.untilScheduled("render", names.ReasonSuccess)
	w.untilEventSays("render", `20 replicas burst into the elastic site "`+w.ns+`-cloud"`)
	w.ready("render")

	// 3. Scale-down empties the elastic region first.
	scale(92)
	w.untilPlaced("render", "cloud:12 home1:40 home2:40")
	w.ready("render")
	w.until("all are ready", "render", func(b *workv1alpha2.ResourceBinding) bool { return readyOf(b) == 92 })

	// 4. Home gets two more nodes: as many replicas return as fit.
	w.atHub(home2, func(l *cellplanev1alpha1.ClusterLedger) { l.Classes[0].Nodes[0].Count = 12; l.Revision++ })
	w.untilPlaced("render", "cloud:4 home1:40 home2:48")
	w.untilEventSays("render", "moved back from elastic sites")
}

// atHub updates a ledger and retries on conflicts.
func (w *world) atHub(l *cellplanev1alpha1.ClusterLedger, change func(*cellplanev1alpha1.ClusterLedger)) {
	w.Helper()
	testenv.Eventually(w, "the ledger can be changed", func(ctx context.Context) (bool, error) {
		if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(l), l); err != nil {
			return false, err
		}
		change(l)
		err := hub.Update(ctx, l)
		return err == nil, err
	})
}

// readyOf sums up the ready replicas.
func readyOf(b *workv1alpha2.ResourceBinding) int {
	sum := 0
	for i := range b.Status.AggregatedStatus {
		var status appsv1.DeploymentStatus
		if raw := b.Status.AggregatedStatus[i].Status; raw != nil && yaml.Unmarshal(raw.Raw, &status) == nil {
			sum += int(status.ReadyReplicas)
		}
	}
	return sum
}

// leaveRetired is the content of the engine's --scheduling-profiles file.
const leaveRetired = `
apiVersion: cellplane.io/v1alpha1
kind: SchedulingProfile
metadata:
  name: leave-retired
spec:
  sites:
    groupBy: Provider
    drain:
      sites: [retired]
      pace: {stepPercent: 25, interval: 1s, maxUnavailablePercent: 25}
`

// A site is drained at a given pace, and never below the workload's availability: a step is taken only when the
// replicas of the previous one are ready. A requested rescheduling does not speed it up. The profile is in the
// engine's configuration file.
func TestDrainAtAPace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.join("old")
	w.policy(aggregated, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.SchedulerName = "leave-retired" })
	const replicas, step = 8, 2
	w.create(w.deployment("web", replicas))
	w.untilPlaced("web", "old:8")
	w.ready("web")
	w.until("all are ready", "web", func(b *workv1alpha2.ResourceBinding) bool { return readyOf(b) == replicas })
	w.join("new")
	w.editCluster("old", false, func(c *clusterv1alpha1.Cluster) { c.Spec.Provider = "retired" })

	for moved := step; moved < replicas; moved += step {
		here := fmt.Sprintf("new:%d old:%d", moved, replicas-moved)
		w.untilPlaced("web", here)
		if moved == step {
			w.until("it was decided about", "web", func(b *workv1alpha2.ResourceBinding) bool { return b.Status.LastScheduledTime != nil })
			w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
				b.Spec.RescheduleTriggeredAt = &metav1.Time{Time: time.Now().Add(time.Second)}
			})
			w.until("it was rescheduled", "web", func(b *workv1alpha2.ResourceBinding) bool {
				return b.Spec.RescheduleTriggeredAt != nil && !b.Status.LastScheduledTime.Before(b.Spec.RescheduleTriggeredAt)
			})
		}
		// The new replicas are not ready. No more leave, however often the workload is scheduled.
		for pass := range 3 {
			w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
				b.Annotations["test.example.io/pass"] = fmt.Sprint(moved, "-", pass)
			})
			name := fmt.Sprint("barrier-", moved, "-", pass)
			w.create(w.deployment(name, 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Resources.Requests = nil }))
			w.until("another is placed", name, func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) > 0 })
		}
		if b := w.until("it is there", "web", func(*workv1alpha2.ResourceBinding) bool { return true }); w.placed(b) != here {
			t.Fatalf("with %d of %d replicas ready it went on to %s", replicas-step, replicas, w.placed(b))
		}
		w.ready("web")
	}
	w.untilPlaced("web", "new:8")
	w.untilEventSays("web", "moved out of sites that are being drained")
}

// A policy with a missing profile reports what to do, and is placed when the profile exists.
func TestProfileMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.policy(aggregated, func(p *policyv1alpha1.PropagationPolicy) {
		p.Annotations = map[string]string{names.SchedulingProfileAnnotation: w.ns}
	})
	w.create(w.deployment("web", 2))
	b := w.untilScheduled("web", names.ReasonSchedulerError)
	if len(b.Spec.Clusters) != 0 {
		t.Errorf("it is in %s", w.placed(b))
	}
	w.untilEventSays("web", fmt.Sprintf("SchedulingProfile %q does not exist; create it", w.ns))
	profile := &cellplanev1alpha1.SchedulingProfile{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	w.create(profile)
	t.Cleanup(func() { _ = cell.Delete(context.Background(), profile) })
	w.untilPlaced("web", "a:2")
}
