package cellcontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/install"
)

// Names of Cluster API.
const (
	clusterGroup     = "cluster.x-k8s.io"
	clusterNameLabel = "cluster.x-k8s.io/cluster-name"
	pausedAnnotation = "cluster.x-k8s.io/paused"
	secretType       = "cluster.x-k8s.io/secret"
)

// clusterKind is the version of Cluster API's Cluster that the contract v1beta2 has.
var clusterKind = schema.GroupVersionKind{Group: clusterGroup, Version: "v1beta2", Kind: "Cluster"}

// finalizer keeps a CellControlPlane until its cell is drained.
const finalizer = v1alpha1.GroupName + "/drain"

const (
	// soon is when to look again at what changes without an event: API servers that start, and the federation.
	soon = 2 * time.Second
	// review is when to look again if all is well. Certificates are renewed then.
	review = 10 * time.Minute
	// linger is how long a drained cell runs on, for watches that read its last events.
	linger = 5 * time.Minute
)

// Controller reconciles CellControlPlanes.
type Controller struct {
	// Objects reads and writes objects of the cluster; reads may be cached. Secrets writes Secrets, and Cluster applies what the chart has.
	Objects client.Client
	Secrets kubernetes.Interface
	Cluster *install.Cluster
	// Release is the installation of the federation.
	Release install.Release
	// Linger is how long a drained cell runs on.
	Linger time.Duration
	// Now tells the time.
	Now func() time.Time
	// Wrap, if not nil, wraps the transports to control planes.
	Wrap transport.WrapperFunc

	mu         sync.Mutex
	registered map[types.UID]string // what this process has registered
}

// Reconcile does what can be done for one CellControlPlane, and says in its status what is missing.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	plane := &v1alpha1.CellControlPlane{}
	if err := c.Objects.Get(ctx, request.NamespacedName, plane); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// 1. Cluster API says which Cluster it is for.
	name := clusterOf(plane)
	if name == "" {
		return reconcile.Result{}, nil // until it does
	}
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind)
	err := c.Objects.Get(ctx, types.NamespacedName{Namespace: plane.Namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) && plane.DeletionTimestamp != nil {
		err = nil // it is drained all the same
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the Cluster %s: %w", name, err)
	}
	// 2. Do what is to be done.
	before := plane.DeepCopy()
	run := &run{Controller: c, plane: plane, cell: name, cluster: cluster, status: &plane.Status}
	result, err := run.reconcile(ctx)
	// 3. Tell it.
	if publishing := c.publish(ctx, before, plane); publishing != nil {
		err = cmp.Or(err, publishing)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("the control plane of cell %s: %w", name, err)
	}
	return result, nil
}

// publish writes the status if it has changed. What a condition was in between does not count.
func (c *Controller) publish(ctx context.Context, before, plane *v1alpha1.CellControlPlane) error {
	plane.Status.ObservedGeneration = plane.Generation
	for i := range plane.Status.Conditions {
		now := &plane.Status.Conditions[i]
		if former := meta.FindStatusCondition(before.Status.Conditions, now.Type); former != nil && former.Status == now.Status {
			now.LastTransitionTime = former.LastTransitionTime
		}
	}
	if equality.Semantic.DeepEqual(before.Status, plane.Status) {
		return nil
	}
	base := before.DeepCopy()
	now := base.DeepCopy()
	now.Status = plane.Status
	return client.IgnoreNotFound(c.Objects.Status().Patch(ctx, now, client.MergeFrom(base)))
}

// clusterOf returns the name of the Cluster that owns a CellControlPlane, which is that of its cell.
func clusterOf(plane *v1alpha1.CellControlPlane) string {
	i := slices.IndexFunc(plane.OwnerReferences, func(owner metav1.OwnerReference) bool {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		return err == nil && group.Group == clusterGroup && owner.Kind == clusterKind.Kind
	})
	if i < 0 {
		return ""
	}
	return plane.OwnerReferences[i].Name
}

// run is one reconciliation.
type run struct {
	*Controller
	plane   *v1alpha1.CellControlPlane
	cell    string
	cluster *unstructured.Unstructured
	status  *v1alpha1.CellControlPlaneStatus
}

func (r *run) reconcile(ctx context.Context) (reconcile.Result, error) {
	if r.paused() {
		r.set(v1alpha1.ConditionPaused, metav1.ConditionTrue, "Paused", "")
		return reconcile.Result{}, nil
	}
	r.set(v1alpha1.ConditionPaused, metav1.ConditionFalse, "NotPaused", "")
	if r.plane.DeletionTimestamp != nil {
		return r.leave(ctx)
	}
	return r.make(ctx)
}

// paused reports whether nothing must be done.
func (r *run) paused() bool {
	_, annotated := r.plane.Annotations[pausedAnnotation]
	paused, _, _ := unstructured.NestedBool(r.cluster.Object, "spec", "paused")
	return annotated || paused
}

// make makes the cell. A step that has to wait ends the reconciliation with what it waits for in a condition.
func (r *run) make(ctx context.Context) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: soon}
	// 1. Render what the chart has for this cell. A cell that cannot be is left alone, and needs no finalizer.
	if message := r.taken(); message != "" {
		r.refuse(reasonNameTaken, message)
		return reconcile.Result{RequeueAfter: review}, nil
	}
	wanted, err := r.render()
	if err != nil {
		r.refuse(reasonInvalidSpec, err.Error())
		return reconcile.Result{RequeueAfter: review}, nil
	}
	// 2. Reach the hub. A deletion has to, too.
	h, err := r.reachHub(ctx, wanted.Config)
	if err != nil {
		r.refuse(reasonHubNotReached, err.Error())
		return again, nil
	}
	own := &wanted.Config.Cells[0]
	if h.foreign(own.Server) {
		r.refuse(reasonNameTaken, fmt.Sprintf("The federation has a cell of this name at %s; use another name for the Cluster.", h.cell.Spec.Endpoint.Server))
		return reconcile.Result{RequeueAfter: review}, nil
	}
	if err := r.hold(ctx); err != nil {
		return again, err
	}
	// 3. Issue certificates.
	complete, err := r.issue(ctx, wanted)
	if err != nil {
		return again, err
	}
	// 4. Apply the objects. The hub knows of additional API servers before they run: changes of cells wait for each of them.
	if err := h.expect(ctx, own.APIServers); err != nil {
		return again, err
	}
	workloads, err := r.workloads(ctx, wanted)
	if err != nil {
		return again, err
	}
	if message := workloads.refusal(); message != "" {
		r.refuse(reasonInvalidSpec, message)
		return reconcile.Result{RequeueAfter: review}, nil
	}
	if err := r.Cluster.ApplyCell(ctx, wanted); err != nil {
		r.refuse(reasonApplyFailed, err.Error())
		return again, err
	}
	r.set(v1alpha1.ConditionApplied, metav1.ConditionTrue, "Applied", "")
	// 5. Observe them.
	if workloads, err = r.workloads(ctx, wanted); err != nil {
		return again, err
	}
	workloads.observe(r)
	answers := r.answers(ctx, wanted)
	if !complete || !answers {
		r.set(v1alpha1.ConditionInTopology, metav1.ConditionFalse, "NotAvailable", "The API servers do not answer.")
		return again, nil
	}
	// 6. Give Cluster API what it asks for.
	if err := r.tell(ctx, wanted); err != nil {
		r.refuse(reasonApplyFailed, err.Error())
		return again, err
	}
	// 7. Make it a cell of the federation, and let it join the topology.
	own.APIServers = workloads.apiServers()
	if err := r.register(ctx, wanted, h); err != nil {
		r.set(v1alpha1.ConditionInTopology, metav1.ConditionFalse, "NotRegistered", err.Error())
		klog.FromContext(ctx).Info("registering a cell failed, will retry", "cell", r.cell, "err", err)
		return again, nil
	}
	joined, err := r.join(ctx, h)
	if err != nil || !joined || !workloads.settled() {
		return again, err
	}
	return reconcile.Result{RequeueAfter: review}, nil
}

// refuse says why nothing is applied.
func (r *run) refuse(reason, message string) {
	r.set(v1alpha1.ConditionApplied, metav1.ConditionFalse, reason, message)
}

// Reasons of the condition Applied.
const (
	reasonInvalidSpec = "InvalidSpec"
	reasonApplyFailed = "ApplyFailed"
)

// taken returns why there cannot be a cell of this name.
func (r *run) taken() (message string) {
	if r.Release.Lists(r.cell) {
		return "The values of the installation list a cell of this name; use another name for the Cluster."
	}
	return ""
}

// hold adds the finalizer.
func (r *run) hold(ctx context.Context) error {
	return r.edit(ctx, func(plane *v1alpha1.CellControlPlane) bool { return controllerutil.AddFinalizer(plane, finalizer) })
}

// edit changes the object but for its status.
func (r *run) edit(ctx context.Context, change func(*v1alpha1.CellControlPlane) (changed bool)) error {
	edited := r.plane.DeepCopy()
	base := r.plane.DeepCopy()
	if !change(edited) {
		return nil
	}
	if err := r.Objects.Patch(ctx, edited, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.plane.ObjectMeta, r.plane.Spec = edited.ObjectMeta, edited.Spec
	return nil
}

// wantsTopology reports whether the cell should hold objects.
func (r *run) wantsTopology() bool { return r.cluster.GetLabels()[names.TopologyLabel] == "true" }
