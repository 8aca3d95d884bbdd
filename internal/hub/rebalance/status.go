package rebalance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// fieldManager is who writes the status of the topology.
const fieldManager = "cellplane-rebalance"

// status returns a copy of what is known to be published.
func (c *change) status() *cellplanev1alpha1.CellTopologyStatus {
	return c.topology.Status.DeepCopy()
}

func setSettled(status *cellplanev1alpha1.CellTopologyStatus, epoch int64, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: names.TopologySettled, Status: value, Reason: reason, Message: message, ObservedGeneration: epoch})
}

// ownedBy returns what of a status is ours. Conditions of others are theirs.
func ownedBy(status *cellplanev1alpha1.CellTopologyStatus) (json.RawMessage, error) {
	owned := *status
	owned.Conditions = nil
	if settled := meta.FindStatusCondition(status.Conditions, names.TopologySettled); settled != nil {
		owned.Conditions = []metav1.Condition{*settled}
	}
	encoded, err := json.Marshal(owned)
	if err != nil {
		return nil, fmt.Errorf("encoding the status of the topology: %w", err)
	}
	return encoded, nil
}

// publish writes the status, unless the topology has another epoch by now, or another hub manager has written it.
func (c *change) publish(ctx context.Context, status *cellplanev1alpha1.CellTopologyStatus) error {
	owned, err := ownedBy(status)
	if err != nil {
		return err
	}
	before := c.sent
	c.sent = owned
	for {
		patch, err := json.Marshal(map[string]any{
			"apiVersion": cellplanev1alpha1.GroupVersion.String(),
			"kind":       "CellTopology",
			"metadata":   map[string]any{"name": c.topology.Name, "resourceVersion": c.topology.ResourceVersion},
			"status":     owned,
		})
		if err != nil {
			return fmt.Errorf("encoding the status of the topology: %w", err)
		}
		written := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: c.topology.Name}}
		err = c.Hub.Status().Patch(ctx, written, client.RawPatch(types.ApplyPatchType, patch), &client.SubResourcePatchOptions{
			PatchOptions: client.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)},
		})
		if err == nil {
			c.topology.Status, c.topology.ResourceVersion = written.Status, written.ResourceVersion
			c.observe()
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("publishing the state of the topology: %w", err)
		}
		fresh := &cellplanev1alpha1.CellTopology{}
		if err := c.Fresh.Get(ctx, client.ObjectKeyFromObject(c.topology), fresh); err != nil {
			return fmt.Errorf("reading the topology: %w", err)
		}
		if fresh.Generation != c.topology.Generation || fresh.UID != c.topology.UID {
			return fmt.Errorf("publishing the state of the topology: %w", errEpochOver)
		}
		if err := c.wroteLast(fresh, before); err != nil {
			return fmt.Errorf("publishing the state of the topology: %w", err)
		}
		c.topology.ResourceVersion = fresh.ResourceVersion
	}
}

// wroteLast returns errOvertaken unless the status is what we know it to be, or what was sent before and not answered.
func (c *change) wroteLast(fresh *cellplanev1alpha1.CellTopology, sent json.RawMessage) error {
	found, err := ownedBy(&fresh.Status)
	if err != nil {
		return err
	}
	known, err := ownedBy(&c.topology.Status)
	if err != nil {
		return err
	}
	if !bytes.Equal(found, known) && !bytes.Equal(found, sent) {
		return errOvertaken
	}
	return nil
}

var (
	errEpochOver = errors.New("the topology has been edited")
	// errOvertaken means that somebody else has published something, perhaps a hub manager that has taken over. Whoever gets it has to
	// read anew what there is.
	errOvertaken = errors.New("somebody else has published it")
)

// observe has the metrics tell what was published.
func (c *change) observe() {
	phases.Reset()
	phases.WithLabelValues(string(c.topology.Status.Phase)).Set(1)
	epochs.WithLabelValues("topology").Set(float64(c.topology.Generation))
	epochs.WithLabelValues("fence").Set(float64(c.topology.Status.FencedEpoch))
}

// reasonBlocked is the reason of the condition Settled while something stands in the way.
const reasonBlocked = "Blocked"

// isBlocked tells whether the status says that something stands in the way of an epoch.
func isBlocked(status *cellplanev1alpha1.CellTopologyStatus, epoch int64) bool {
	settled := meta.FindStatusCondition(status.Conditions, names.TopologySettled)
	return settled != nil && settled.Reason == reasonBlocked && settled.ObservedGeneration == epoch
}

// blocked tells what stands in the way of a change.
func (c *Controller) blocked(ctx context.Context, topology *cellplanev1alpha1.CellTopology, problem error) {
	c.event(topology, corev1.EventTypeWarning, reasonBlocked, "Rebalance", "%v", problem)
	change := &change{Controller: c, topology: topology}
	status := change.status()
	setSettled(status, topology.Generation, metav1.ConditionFalse, reasonBlocked, problem.Error())
	_ = change.publish(ctx, status) // it is logged as well
}

func (c *Controller) event(about runtime.Object, kind, reason, action, message string, args ...any) {
	if c.Events != nil {
		c.Events.Eventf(about, nil, kind, reason, action, message, args...)
	}
}
