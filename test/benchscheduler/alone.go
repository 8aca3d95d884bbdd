package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
	"github.com/cellplane/cellplane/internal/ledger"
)

// workersAlone place bindings, as many as in an engine.
const workersAlone = 128

// alone measures the scheduler without the rest of an engine: bindings wait because no cluster is eligible, then
// all clusters are. Each is scheduled, reserved in the ledger on the hub, written to the cell and reported as an
// event; no Works are created.
func (c *measuredCell) alone(ctx context.Context, o *options, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	builtIn := rest.CopyConfig(c.cell)
	builtIn.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(builtIn)
	if err != nil {
		return err
	}
	view, err := cell.New(c.cell, cell.Options{Name: "cell-a"})
	if err != nil {
		return err
	}
	store, err := ledger.NewStore(ledger.Options{Hub: c.hub, Holder: "cell-a"})
	if err != nil {
		return err
	}
	plan := scheduler.New(view, events.NewRecorder(ctx, client, events.SuccessesSome), scheduler.Options{Ledger: store})
	var running errgroup.Group
	defer func() { cancel(); _ = running.Wait() }()
	running.Go(func() error { store.Run(ctx); return nil })
	if err := view.Start(ctx); err != nil {
		return err
	}
	<-store.Synced()
	running.Go(func() error { plan.Run(ctx, workersAlone); return nil })

	if err := c.createBindings(ctx, o.bindings, o.writers); err != nil {
		return err
	}
	for len(plan.Refused(names.ReasonNoClusterFit)) < o.bindings {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting until bindings are refused: %w", err)
		}
		pause(ctx, 100*time.Millisecond)
	}
	began := c.begin()
	if err := c.open(ctx); err != nil {
		return err
	}
	took, err := c.members.untilPlaced(ctx, began, "alone-", o.bindings, other)
	if err != nil {
		return fmt.Errorf("placing bindings without an engine: %w", err)
	}
	fmt.Fprintf(out, "bindings placed by the scheduler alone\t%d\t%s\t%.0f/s\t\n", o.bindings, took.Round(time.Millisecond), float64(o.bindings)/took.Seconds())
	c.spent(out, o.bindings)
	return c.clear(ctx)
}

// createBindings creates bindings without templates.
func (c *measuredCell) createBindings(ctx context.Context, n, writers int) error {
	group, ctx := errgroup.WithContext(ctx)
	for writer := range writers {
		group.Go(func() error {
			for i := writer; i < n; i += writers {
				d := deployment("alone", i)
				b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name + "-deployment"}}
				b.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: d.Name, UID: types.UID(d.Name)}
				b.Spec.Replicas = *d.Spec.Replicas
				b.Spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: request()}
				b.Spec.Placement = &policyv1alpha1.Placement{}
				place(b.Spec.Placement, policyv1alpha1.ClusterAffinityTerm{AffinityName: "others", ClusterAffinity: policyv1alpha1.ClusterAffinity{ExcludeClusters: []string{lost}}})
				if err := c.client.Create(ctx, b); err != nil {
					return fmt.Errorf("creating a binding: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// open makes all clusters eligible, except for the one that is lost later; closed is their state before.
func (c *measuredCell) open(ctx context.Context, taints ...corev1.Taint) error {
	for i := range others {
		if err := c.taint(ctx, member(i), taints...); err != nil {
			return err
		}
	}
	return nil
}

// clear restores the cell to its state before bindings were placed.
func (c *measuredCell) clear(ctx context.Context) error {
	if err := c.open(ctx, closed()); err != nil {
		return err
	}
	if err := c.client.DeleteAllOf(ctx, &workv1alpha2.ResourceBinding{}, ctrlclient.InNamespace(namespace)); err != nil {
		return err
	}
	for {
		var left workv1alpha2.ResourceBindingList
		if err := c.client.List(ctx, &left, ctrlclient.InNamespace(namespace)); err != nil {
			return fmt.Errorf("waiting until bindings are gone: %w", err)
		}
		if len(left.Items) == 0 {
			return nil
		}
		pause(ctx, 200*time.Millisecond)
	}
}
