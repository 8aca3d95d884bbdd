package executionspace

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/hubtest"
	"github.com/cellplane/cellplane/internal/testenv"
)

func start(t *testing.T, options Options) *hubtest.Hub {
	t.Helper()
	options.RetryAfter = 50 * time.Millisecond
	return hubtest.Start(t, func(_ context.Context, mgr manager.Manager) error { return Add(mgr, options) })
}

// joined creates a Cluster and waits for its space.
func joined(t *testing.T, hub *hubtest.Hub, suffix string) (*clusterv1alpha1.Cluster, *corev1.Namespace) {
	t.Helper()
	cluster := hub.Cluster(t, suffix, clusterv1alpha1.ClusterSpec{})
	cluster = hub.Eventually(t, "the cluster has its finalizer", cluster, func(c *clusterv1alpha1.Cluster) bool {
		return controllerutil.ContainsFinalizer(c, "karmada.io/cluster-controller")
	})
	space := &corev1.Namespace{}
	testenv.Eventually(t, "it has its space", func(ctx context.Context) (bool, error) {
		err := hub.Client.Get(ctx, client.ObjectKey{Name: "karmada-es-" + cluster.Name}, space)
		return err == nil, err
	})
	return cluster, space
}

func work(t *testing.T, hub *hubtest.Hub, namespace string) *workv1alpha1.Work {
	t.Helper()
	work := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace, Finalizers: []string{names.ExecutionFinalizer}}}
	if err := hub.Client.Create(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	return work
}

// execute removes the finalizer of a deleted Work, as an engine does after it has cleaned up.
func execute(t *testing.T, hub *hubtest.Hub, work *workv1alpha1.Work) {
	t.Helper()
	testenv.Eventually(t, "the work is being deleted", func(ctx context.Context) (bool, error) {
		err := hub.Client.Get(ctx, client.ObjectKeyFromObject(work), work)
		return work.DeletionTimestamp != nil, err
	})
	before := work.DeepCopy()
	controllerutil.RemoveFinalizer(work, names.ExecutionFinalizer)
	if err := hub.Client.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, hub *hubtest.Hub, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		testenv.Eventually(t, object.GetName()+" is gone", func(ctx context.Context) (bool, error) {
			err := hub.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), err
		})
	}
}

func TestSpaceIsMadeAndDrained(t *testing.T) {
	hub := start(t, Options{})
	cluster, space := joined(t, hub, "a")
	hub.EventuallyEvent(t, cluster, names.EventCreateExecutionSpaceSucceed)
	w := work(t, hub, space.Name)
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", Namespace: space.Name}}
	if err := hub.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the work is being deleted", func(ctx context.Context) (bool, error) {
		err := hub.Client.Get(ctx, client.ObjectKeyFromObject(w), w)
		return w.DeletionTimestamp != nil, err
	})
	// The Cluster is deleted again; it stays while the Work exists.
	if err := hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Fatalf("the cluster was removed before it was drained: %v", err)
	}
	execute(t, hub, w)
	gone(t, hub, cluster, space, other)
	hub.EventuallyEvent(t, cluster, names.EventRemoveExecutionSpaceSucceed)
}

func TestSpaceIsMadeAgain(t *testing.T) {
	hub := start(t, Options{})
	cluster, space := joined(t, hub, "a")
	uid := space.UID
	if err := hub.Client.Delete(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	// The test does what a namespace controller would do.
	e, err := newEmptier(testenv.SharedAPIServer(t).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the empty namespace is finalized", func(ctx context.Context) (bool, error) {
		return e.finalize(ctx, space.Name)
	})
	testenv.Eventually(t, "cluster "+cluster.Name+" has a space again", func(ctx context.Context) (bool, error) {
		err := hub.Client.Get(ctx, client.ObjectKeyFromObject(space), space)
		return err == nil && space.UID != uid, err
	})
}

// Works are in cells, too.
func TestCellsAreDrained(t *testing.T) {
	var cell client.Client
	var passes atomic.Int64
	hub := start(t, Options{Cells: func(context.Context) (map[string]client.Client, error) {
		passes.Add(1)
		return map[string]client.Client{"cell-a": &elsewhere{Client: cell}}, nil
	}})
	cell = hub.Client
	cluster, space := joined(t, hub, "a")
	inCell := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.Name + cellSuffix}}
	if err := hub.Client.Create(t.Context(), inCell); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), inCell) })
	w := work(t, hub, inCell.Name)
	moved := &workv1alpha1.Work{ObjectMeta: metav1.ObjectMeta{
		Name: "moved", Namespace: inCell.Name, Finalizers: []string{names.ExecutionFinalizer}, Labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrated},
	}}
	if err := hub.Client.Create(t.Context(), moved); err != nil { // no engine removes its finalizer
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hub.Client.Patch(context.Background(), moved, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	if err := hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the space is being deleted", func(ctx context.Context) (bool, error) {
		err := hub.Client.Get(ctx, client.ObjectKeyFromObject(space), space)
		return space.DeletionTimestamp != nil, err
	})
	// The Cluster stays while the cell has a Work.
	since := passes.Load()
	testenv.Eventually(t, "the controller has looked some times", func(context.Context) (bool, error) { return passes.Load() >= since+3, nil })
	for _, object := range []client.Object{cluster, space} {
		if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatalf("%s is gone while there is a work in a cell: %v", object.GetName(), err)
		}
	}
	execute(t, hub, w)
	gone(t, hub, cluster, space)
}

const cellSuffix = "-in-cell"

// elsewhere is the same API server with other namespaces: a second one would take seconds to start.
type elsewhere struct{ client.Client }

func (e *elsewhere) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	return e.Client.List(ctx, list, client.InNamespace(all.Namespace+cellSuffix))
}

func TestForcedOut(t *testing.T) {
	hub := start(t, Options{})
	cluster, space := joined(t, hub, "a")
	// Remove the finalizer and delete the space, as unjoin --force does.
	if err := hub.Client.Delete(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	if err := hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if err := hub.Client.Patch(t.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	gone(t, hub, cluster, space)

	// A space that is not being deleted is left alone, with or without a Cluster.
	stray := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ExecutionNamespace(hub.Name + "-stray")}}
	if err := hub.Client.Create(t.Context(), stray); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), stray) })
	joined(t, hub, "b") // the controller has gone on
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(stray), stray); err != nil || stray.DeletionTimestamp != nil {
		t.Errorf("a namespace without a cluster was deleted (%v)", err)
	}
}

// A failure to create or remove a space is an event of the Cluster, and is retried.
func TestSpaceIsRefused(t *testing.T) {
	hub := start(t, Options{})
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ExecutionNamespace(hub.Name + "-a")}}
	refuse := func(operation admissionregistrationv1.OperationType, probe func(context.Context) error) (relent func()) {
		return testenv.Refuse(t, testenv.SharedAPIServer(t).RESTConfig(), testenv.Refusal{
			Operation: operation, Resource: "namespaces", Name: space.Name, Words: "no namespaces today", Probe: probe,
		})
	}
	relent := refuse(admissionregistrationv1.Create, func(ctx context.Context) error {
		return hub.Client.Create(ctx, space.DeepCopy(), client.DryRunAll)
	})
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{})
	hub.EventuallyEvent(t, cluster, names.EventCreateExecutionSpaceFailed)
	relent()
	hub.EventuallyEvent(t, cluster, names.EventCreateExecutionSpaceSucceed)

	relent = refuse(admissionregistrationv1.Delete, func(ctx context.Context) error {
		return hub.Client.Delete(ctx, space, client.DryRunAll)
	})
	if err := hub.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	hub.EventuallyEvent(t, cluster, names.EventRemoveExecutionSpaceFailed)
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		t.Errorf("the cluster was removed before its space: %v", err)
	}
	relent()
	gone(t, hub, cluster, space)
}
