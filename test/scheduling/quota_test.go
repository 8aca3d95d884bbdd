package scheduling_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/testenv"
)

func cpus(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

// Q3: the workloads of a namespace stay within the quota in all clusters, including the usage of other cells. A
// refused workload reports it and is placed when usage drops.
func TestQuotaEnforcement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	atHub := &policyv1alpha1.FederatedResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "team", Annotations: map[string]string{names.QuotaUsedAnnotation: `{"cell-z":{"cpu":"3"}}`}},
		Spec:       policyv1alpha1.FederatedResourceQuotaSpec{Overall: cpus("8")},
	}
	inCell := atHub.DeepCopy()
	if err := hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Fatal(err)
	}
	if err := hub.Create(t.Context(), atHub); err != nil {
		t.Fatal(err)
	}
	w.create(inCell)
	w.policy(aggregated)
	w.create(w.deployment("web", 4))
	w.untilScheduled("web", names.ReasonSuccess)
	w.create(w.deployment("kept-out", 2))
	b := w.untilScheduled("kept-out", names.ReasonQuotaExceeded)
	if len(b.Spec.Clusters) != 0 {
		t.Errorf("beyond the quota the workload is in %s", w.placed(b))
	}
	w.create(w.deployment("small", 1))
	w.untilScheduled("small", names.ReasonSuccess)
	used := func(what, want string) {
		t.Helper()
		testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
			err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(atHub), atHub)
			return atHub.Annotations[names.QuotaUsedAnnotation] == want, fmt.Errorf("%w: %s", err, atHub.Annotations[names.QuotaUsedAnnotation])
		})
	}
	used("the usage is recorded", `{"cell-a":{"cpu":"5"},"cell-z":{"cpu":"3"}}`)
	d := w.deployment("web", 0)
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](5) })
	b = w.untilScheduled("web", names.ReasonQuotaExceeded)
	if w.placed(b) != "a:4" && w.placed(b) != "b:4" {
		t.Errorf("beyond the quota the workload is in %s", w.placed(b))
	}
	w.edit(d, false, func() { d.Spec.Replicas = ptr.To[int32](2) })
	w.untilScheduled("kept-out", names.ReasonSuccess)
	used("released quota is used", `{"cell-a":{"cpu":"5"},"cell-z":{"cpu":"3"}}`)

	w.create(w.deployment("raised", 3), w.deployment("lifted", 5))
	w.untilScheduled("raised", names.ReasonQuotaExceeded)
	w.untilScheduled("lifted", names.ReasonQuotaExceeded)
	testenv.Eventually(t, "the quota is raised", func(ctx context.Context) (bool, error) {
		if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(atHub), atHub); err != nil {
			return false, err
		}
		atHub.Spec.Overall = cpus("11")
		err := hub.Update(ctx, atHub)
		return err == nil, err
	})
	w.edit(inCell, false, func() { inCell.Spec.Overall = cpus("11") })
	w.untilScheduled("raised", names.ReasonSuccess)
	w.untilScheduled("lifted", names.ReasonQuotaExceeded)
	for client, quota := range map[ctrlclient.Client]*policyv1alpha1.FederatedResourceQuota{hub: atHub, cell: inCell} {
		if err := client.Delete(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
	}
	w.untilScheduled("lifted", names.ReasonSuccess)
}

// Q3: requests that exceed the quota stay refused, however often they are tried, and whether or not this scheduler chooses the clusters. The copies
// keep the requests that were admitted.
func TestQuotaRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	quota := &policyv1alpha1.FederatedResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "team"}, Spec: policyv1alpha1.FederatedResourceQuotaSpec{Overall: cpus("15m")}}
	atHub := quota.DeepCopy()
	if err := hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}); err != nil {
		t.Fatal(err)
	}
	if err := hub.Create(t.Context(), atHub); err != nil {
		t.Fatal(err)
	}
	w.create(quota)
	w.policy(aggregated)
	d := w.deployment("web", 1)
	request := func(n string) { d.Spec.Template.Spec.Containers[0].Resources.Requests = cpus(n) }
	request("10m")
	w.create(d)
	w.untilScheduled("web", names.ReasonSuccess)
	requested := func() string {
		containers, _, err := unstructured.NestedSlice(manifestOf(t, w.untilWork("a", "web")).Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) != 1 {
			t.Fatalf("no container: %v", err)
		}
		cpu, _, _ := unstructured.NestedString(containers[0].(map[string]any), "resources", "requests", "cpu")
		return cpu
	}
	untilRequested := func(want string) {
		t.Helper()
		testenv.Eventually(t, "the copy requests "+want, func(context.Context) (bool, error) { return requested() == want, nil })
	}
	untilRequested("10m")

	w.edit(d, false, func() { request("20m") })
	w.untilScheduled("web", names.ReasonQuotaExceeded)
	later := metav1.NewTime(time.Now().Add(time.Minute))
	w.editBinding("web", func(b *workv1alpha2.ResourceBinding) { b.Spec.RescheduleTriggeredAt = &later })
	w.untilScheduled("web", names.ReasonQuotaExceeded)
	if got := requested(); got != "10m" {
		t.Errorf("the copy requests %s", got)
	}
	w.edit(d, false, func() { request("12m") })
	w.untilScheduled("web", names.ReasonSuccess)
	untilRequested("12m")

	// A suspended binding is guarded as well.
	w.editBinding("web", func(b *workv1alpha2.ResourceBinding) {
		b.Spec.Suspension = &workv1alpha2.Suspension{Scheduling: ptr.To(true)}
	})
	w.edit(d, false, func() { request("30m") })
	w.until("the suspended binding is held", "web", func(b *workv1alpha2.ResourceBinding) bool {
		return b.Spec.ReplicaRequirements.ResourceRequest.Cpu().String() == "30m" && b.Annotations[names.AdmittedRequirementsAnnotation] != ""
	})
	if got := requested(); got != "12m" {
		t.Errorf("the copy requests %s", got)
	}
	testenv.Eventually(t, "the quota is raised", func(ctx context.Context) (bool, error) {
		if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(atHub), atHub); err != nil {
			return false, err
		}
		atHub.Spec.Overall = cpus("30m")
		err := hub.Update(ctx, atHub)
		return err == nil, err
	})
	w.edit(quota, false, func() { quota.Spec.Overall = cpus("30m") })
	untilRequested("30m")
}

// Q1, Q2: clusters get their assignments as ResourceQuotas, and their usage is aggregated.
func TestQuotaShares(t *testing.T) {
	stop := enginetest.Start(context.Background(), engine.Config{Cell: "hub", Config: hubConfig, Hub: true, SuccessEvents: events.SuccessesAll})
	defer stop()
	w := newWorldIn(t, hub, "a", "b")
	share := func(cluster, n string) policyv1alpha1.StaticClusterAssignment {
		return policyv1alpha1.StaticClusterAssignment{ClusterName: w.full(cluster), Hard: cpus(n)}
	}
	quota := &policyv1alpha1.FederatedResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "team"}, Spec: policyv1alpha1.FederatedResourceQuotaSpec{
		Overall: cpus("10"), StaticAssignments: []policyv1alpha1.StaticClusterAssignment{share("a", "4"), share("b", "6")},
	}}
	w.create(quota)
	work := func(cluster string) *workv1alpha1.Work {
		return &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: names.ExecutionNamespace(w.full(cluster)), Name: names.WorkName("ResourceQuota", w.ns, "team")}}
	}
	report := func(cluster, used string) {
		t.Helper()
		at := work(cluster)
		w.edit(at, true, func() {
			meta.SetStatusCondition(&at.Status.Conditions, metav1.Condition{Type: names.WorkApplied, Status: metav1.ConditionTrue, Reason: "Applied"})
			at.Status.ManifestStatuses = []workv1alpha1.ManifestStatus{{
				Identifier: workv1alpha1.ResourceIdentifier{Version: "v1", Kind: "ResourceQuota", Resource: "resourcequotas", Namespace: w.ns, Name: "team"},
				Health:     workv1alpha1.ResourceHealthy, Status: &runtime.RawExtension{Raw: []byte(`{"hard":{"cpu":"4"},"used":{"cpu":"` + used + `"}}`)},
			}}
		})
	}
	report("a", "1500m")
	report("b", "2")
	testenv.Eventually(t, "the status is aggregated", func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(quota), quota)
		return quota.Status.OverallUsed.Cpu().String() == "3500m" && len(quota.Status.AggregatedStatus) == 2 && quota.Status.Overall.Cpu().String() == "10",
			fmt.Errorf("%w: %+v", err, quota.Status)
	})
	testenv.Eventually(t, "events report it", func(ctx context.Context) (bool, error) {
		var list corev1.EventList
		err := hub.List(ctx, &list, ctrlclient.InNamespace(w.ns))
		reported := map[string]bool{}
		for i := range list.Items {
			if list.Items[i].InvolvedObject.UID == quota.UID {
				reported[list.Items[i].Reason] = true
			}
		}
		return reported[names.EventSyncWorkSucceed] && reported[names.EventAggregateStatusSucceed], fmt.Errorf("%w: %v", err, reported)
	})
	at := work("a")
	if err := hub.Get(t.Context(), ctrlclient.ObjectKeyFromObject(at), at); err != nil {
		t.Fatal(err)
	}
	manifest := manifestOf(t, at)
	if manifest.GetKind() != "ResourceQuota" || manifest.GetNamespace() != w.ns || manifest.GetName() != "team" || fmt.Sprint(manifest.Object["spec"]) != "map[hard:map[cpu:4]]" {
		t.Errorf("assignment = %v", manifest.Object)
	}
	if at.Labels[names.FederatedResourceQuotaNameLabel] != "team" || at.Labels[names.FederatedResourceQuotaNamespaceLabel] != w.ns {
		t.Errorf("labels = %v", at.Labels)
	}

	w.edit(quota, false, func() { quota.Spec.StaticAssignments = []policyv1alpha1.StaticClusterAssignment{share("b", "5")} })
	testenv.Eventually(t, "the assignment is removed", func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(at), at)
		if err != nil || at.DeletionTimestamp == nil {
			return apierrors.IsNotFound(err), err
		}
		at.Finalizers = nil
		return false, hub.Update(ctx, at)
	})
	testenv.Eventually(t, "the other assignment is updated", func(ctx context.Context) (bool, error) {
		other := work("b")
		if err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(other), other); err != nil {
			return false, err
		}
		return fmt.Sprint(manifestOf(t, other).Object["spec"]) == "map[hard:map[cpu:5]]", nil
	})
	if err := hub.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all assignments are removed", func(ctx context.Context) (bool, error) {
		other := work("b")
		err := hub.Get(ctx, ctrlclient.ObjectKeyFromObject(other), other)
		if err != nil || other.DeletionTimestamp == nil {
			return apierrors.IsNotFound(err), err
		}
		other.Finalizers = nil
		return false, hub.Update(ctx, other)
	})
}
