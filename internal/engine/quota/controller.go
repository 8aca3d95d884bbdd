package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/slots"
)

// Controller keeps the recorded usage of quotas correct. On the hub it also propagates the clusters' assignments
// and updates the status.
type Controller struct {
	cell      *cell.Cell
	guard     *Guard
	scheduler *scheduler.Scheduler
	report    func(*cell.Work) execution.Report
	recorder  *events.Recorder
	hub       bool
	queue     *queue.Queue[cell.Key]
}

// debounce delays a reconcile after changes of bindings in the namespace.
const debounce = time.Second

// resync is the interval at which a quota is reconciled without events.
const resync = 5 * time.Minute

// New returns a controller that watches a cell. The parameter hub says that the cell is the hub; report then
// returns the status of its Works.
func New(c *cell.Cell, guard *Guard, s *scheduler.Scheduler, report func(*cell.Work) execution.Report, recorder *events.Recorder, hub bool) *Controller {
	q := &Controller{cell: c, guard: guard, scheduler: s, report: report, recorder: recorder, hub: hub, queue: queue.New[cell.Key]("quota")}
	c.Quotas.Subscribe(func(key cell.Key, _, _ *policyv1alpha1.FederatedResourceQuota) { q.queue.AddNow(key) })
	c.SubscribeBindings(func(key cell.Key, old, now *workv1alpha2.ResourceBinding) {
		if !changes(old, now) {
			return
		}
		for _, quota := range guard.quotasOf(key.Namespace) {
			q.queue.AddAfter(cell.Key{Namespace: quota.Namespace, Name: quota.Name}, debounce)
		}
	})
	if hub {
		c.Works.Subscribe(func(_ cell.Key, old, now *cell.Work) { q.Changed(now); q.Changed(old) })
	}
	return q
}

// changes reports whether a change of a binding can change its usage. A move changes only labels.
func changes(old, now *workv1alpha2.ResourceBinding) bool {
	return old == nil || now == nil || old.Generation != now.Generation || old.Labels[names.RebalanceStatusLabel] != now.Labels[names.RebalanceStatusLabel]
}

// Changed queues the quota whose assignment a Work carries.
func (q *Controller) Changed(work *cell.Work) {
	if q.hub && work != nil && work.Binding.Name == "" && len(work.Objects) == 1 && work.Objects[0].Kind == "ResourceQuota" {
		q.queue.Add(work.Objects[0].Key)
	}
}

// wake queues the bindings that were refused because of a quota.
func (q *Controller) wake(namespace string) {
	for _, key := range q.scheduler.Refused(names.ReasonQuotaExceeded) {
		if key.Namespace == namespace {
			q.scheduler.Enqueue(key)
		}
	}
	for _, key := range q.guard.heldIn(namespace) {
		q.scheduler.Enqueue(key)
	}
}

// Run reconciles quotas until the context ends.
func (q *Controller) Run(ctx context.Context, workers int) { q.queue.Run(ctx, workers, q.Reconcile) }

// Reconcile updates the recorded usage of a quota and, on the hub, the assignments and the status.
func (q *Controller) Reconcile(ctx context.Context, key cell.Key) error {
	quota := q.cell.Quotas.Get(key)
	if quota == nil || quota.DeletionTimestamp != nil {
		q.wake(key.Namespace)
		if !q.hub {
			return nil
		}
		_, err := q.assign(ctx, key, nil)
		return err
	}
	if err := q.guard.correct(ctx, key); err != nil {
		return err
	}
	// A workload that shrinks updates the quota before its binding is written. So capacity may have been freed even
	// if nothing was corrected here.
	q.wake(key.Namespace)
	if !q.hub {
		return queue.Later{After: resync}
	}
	waits, err := q.guard.forgetGone(ctx, key)
	if err != nil {
		return err
	}
	about := events.OfPolicy("FederatedResourceQuota", quota)
	assigned, err := q.assign(ctx, key, quota)
	q.record(about, "works", names.EventSyncWorkSucceed, names.EventSyncWorkFailed, "the clusters have their assignments", assigned > 0, err)
	if err != nil {
		return err
	}
	succeed, fail, note := names.EventCollectOverallStatusSucceed, names.EventCollectOverallStatusFailed, "the usage in all cells was added up"
	if len(quota.Spec.StaticAssignments) > 0 {
		succeed, fail, note = names.EventAggregateStatusSucceed, names.EventAggregateStatusFailed, "the usage in the clusters was added up"
	}
	updated, err := q.updateStatus(ctx, key)
	q.record(about, "status", succeed, fail, note, updated, err)
	if err != nil {
		return err
	}
	if waits {
		return queue.Later{After: goneRetry}
	}
	return queue.Later{After: resync}
}

// record records the outcome of a step. Successes that changed nothing are not written.
func (q *Controller) record(about *corev1.ObjectReference, aspect, succeed, fail, note string, changed bool, err error) {
	switch {
	case err == nil:
		q.recorder.Also(about, aspect, succeed, note, changed)
	case !apierrors.IsConflict(err):
		q.recorder.Failed(about, aspect, fail, err.Error())
	}
}

// assign updates the ResourceQuotas in all clusters and returns how many Works it wrote or deleted. A nil quota deletes them.
func (q *Controller) assign(ctx context.Context, key cell.Key, quota *policyv1alpha1.FederatedResourceQuota) (int, error) {
	written := 0
	var errs []error
	for _, cluster := range q.cell.Clusters.All() {
		var share corev1.ResourceList
		if quota != nil && cluster.DeletionTimestamp == nil {
			if i := slices.IndexFunc(quota.Spec.StaticAssignments, func(a policyv1alpha1.StaticClusterAssignment) bool { return a.ClusterName == cluster.Name }); i >= 0 {
				share = quota.Spec.StaticAssignments[i].Hard
			}
		}
		now := q.cell.Works.Get(workKey(cluster.Name, key))
		switch {
		case share != nil:
			wrote, err := q.assignTo(ctx, cluster.Name, quota, share, now)
			if wrote {
				written++
			}
			errs = append(errs, err)
		case now != nil && now.Binding.Name == "" && !now.Deleting && !now.Frozen:
			written++
			errs = append(errs, q.cell.DeleteWork(ctx, now))
		}
	}
	return written, errors.Join(errs...)
}

func workKey(cluster string, quota cell.Key) cell.Key {
	return cell.Key{Namespace: names.ExecutionNamespace(cluster), Name: names.WorkName("ResourceQuota", quota.Namespace, quota.Name)}
}

// assignTo updates the ResourceQuota in one cluster and reports whether the Work was written.
func (q *Controller) assignTo(ctx context.Context, cluster string, quota *policyv1alpha1.FederatedResourceQuota, share corev1.ResourceList, now *cell.Work) (bool, error) {
	if now != nil && now.Deleting {
		return false, nil // its deletion triggers another reconcile
	}
	key := workKey(cluster, cell.Key{Namespace: quota.Namespace, Name: quota.Name})
	id := uuid.NewString()
	if now != nil && now.ID != "" {
		id = now.ID
	}
	manifest, err := manifestOf(quota, share)
	if err != nil {
		return false, err
	}
	stamped := merge.Stamp(manifest, merge.Marks{WorkNamespace: key.Namespace, WorkName: key.Name, WorkID: id, TemplateUID: quota.UID, Cell: q.cell.Name})
	raw, err := stamped.MarshalJSON()
	if err != nil {
		return false, err
	}
	work := &workv1alpha1.Work{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Finalizers: []string{names.ExecutionFinalizer},
			Labels: map[string]string{
				names.WorkPermanentIDLabel: id, names.SlotLabel: slots.Of(quota.Namespace, quota.Name).String(),
				names.FederatedResourceQuotaNamespaceLabel: quota.Namespace, names.FederatedResourceQuotaNameLabel: quota.Name,
			},
		},
		Spec: workv1alpha1.WorkSpec{Workload: workv1alpha1.WorkloadTemplate{Manifests: []workv1alpha1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}}},
	}
	if now == nil {
		if err := q.cell.EnsureNamespace(ctx, key.Namespace); err != nil {
			return false, err
		}
		_, err = q.cell.CreateWork(ctx, work)
		return true, err
	}
	if now.Digest == cell.WorkDigest(work.Labels, nil, false, nil, []cell.Object{cell.DescribeManifest(stamped)}) {
		return false, nil
	}
	_, err = q.cell.UpdateWork(ctx, now, work)
	return true, err
}

func manifestOf(quota *policyv1alpha1.FederatedResourceQuota, share corev1.ResourceList) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Namespace: quota.Namespace, Name: quota.Name},
		Spec:       corev1.ResourceQuotaSpec{Hard: share},
	})
	if err != nil {
		return nil, fmt.Errorf("converting the assignment of FederatedResourceQuota %s/%s: %w", quota.Namespace, quota.Name, err)
	}
	manifest := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(manifest.Object, "status")
	unstructured.RemoveNestedField(manifest.Object, "metadata", "creationTimestamp")
	return manifest, nil
}

// updateStatus updates the status of a quota: the usage that clusters with assignments report or, without
// assignments, the usage recorded by the cells. It reports whether the status has changed.
func (q *Controller) updateStatus(ctx context.Context, key cell.Key) (bool, error) {
	fresh := &policyv1alpha1.FederatedResourceQuota{}
	if err := q.guard.hub.Get(ctx, key, fresh); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	status := policyv1alpha1.FederatedResourceQuotaStatus{Overall: fresh.Spec.Overall, OverallUsed: recordOf(fresh).total("")}
	if len(fresh.Spec.StaticAssignments) > 0 {
		status.OverallUsed = corev1.ResourceList{}
	}
	for i := range fresh.Spec.StaticAssignments {
		cluster := fresh.Spec.StaticAssignments[i].ClusterName
		reported := q.shareStatus(workKey(cluster, key))
		if reported == nil {
			continue
		}
		status.AggregatedStatus = append(status.AggregatedStatus, policyv1alpha1.ClusterQuotaStatus{ClusterName: cluster, ResourceQuotaStatus: *reported})
		for name, quantity := range within(podNames(reported.Used), fresh.Spec.Overall) {
			total := status.OverallUsed[name]
			total.Add(quantity)
			status.OverallUsed[name] = total
		}
	}
	slices.SortFunc(status.AggregatedStatus, func(a, b policyv1alpha1.ClusterQuotaStatus) int { return strings.Compare(a.ClusterName, b.ClusterName) })
	if equality.Semantic.DeepEqual(fresh.Status, status) {
		return false, nil
	}
	fresh.Status = status
	return true, q.guard.hub.Status().Update(ctx, fresh)
}

// podNames replaces the names of amounts by those that pods use.
func podNames(list corev1.ResourceList) corev1.ResourceList {
	result := corev1.ResourceList{}
	for name, quantity := range list {
		result[podName(name)] = quantity
	}
	return result
}

// shareStatus returns the ResourceQuota status that a cluster reports for its assignment, or nil.
func (q *Controller) shareStatus(key cell.Key) *corev1.ResourceQuotaStatus {
	work := q.cell.Works.Get(key)
	if work == nil {
		return nil
	}
	report := q.report(work)
	if len(report.Objects) != 1 || report.Objects[0] == nil || report.Objects[0].Status == nil {
		return nil
	}
	status := &corev1.ResourceQuotaStatus{}
	if json.Unmarshal(report.Objects[0].Status, status) != nil {
		return nil
	}
	return status
}
