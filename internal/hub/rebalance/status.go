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

// fieldManager owns the controller's part of the status of the topology.
const fieldManager = "cellplane-rebalance"

// The reasons of the condition Settled, and of events. The phases are cellplanev1alpha1.TopologyPhase.
const (
	// reasonBlocked means that something has to be repaired before the change can go on.
	reasonBlocked       = "Blocked"
	reasonFencing       = "Fencing"
	reasonMoving        = "Moving"
	reasonMoved         = "Moved"
	reasonLeftoversKept = "LeftoversKept"
	reasonStable        = "Stable"
	// reasonCleanedUp is of events only.
	reasonCleanedUp = "CleanedUp"
)

// status returns a copy of the published status, as far as it is known.
func (c *change) status() *cellplanev1alpha1.CellTopologyStatus {
	return c.topology.Status.DeepCopy()
}

func setSettled(status *cellplanev1alpha1.CellTopologyStatus, epoch int64, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: names.TopologySettled, Status: value, Reason: reason, Message: message, ObservedGeneration: epoch})
}

// ownedPart returns the part of a status that the controller owns. Other writers own other conditions.
func ownedPart(status *cellplanev1alpha1.CellTopologyStatus) (json.RawMessage, error) {
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

// publish writes the status, unless the topology has another epoch by now, or another hub manager has written the
// status.
func (c *change) publish(ctx context.Context, status *cellplanev1alpha1.CellTopologyStatus) error {
	owned, err := ownedPart(status)
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
			return fmt.Errorf("publishing the status of the topology: %w", err)
		}
		fresh := &cellplanev1alpha1.CellTopology{}
		if err := c.Fresh.Get(ctx, client.ObjectKeyFromObject(c.topology), fresh); err != nil {
			return fmt.Errorf("reading the topology: %w", err)
		}
		if fresh.Generation != c.topology.Generation || fresh.UID != c.topology.UID {
			return fmt.Errorf("publishing the status of the topology: %w", errEpochOver)
		}
		if err := c.wroteLast(fresh, before); err != nil {
			return fmt.Errorf("publishing the status of the topology: %w", err)
		}
		c.topology.ResourceVersion = fresh.ResourceVersion
	}
}

// wroteLast returns errOverwritten unless the status is the known one, or the one that was sent last without an answer.
func (c *change) wroteLast(fresh *cellplanev1alpha1.CellTopology, sent json.RawMessage) error {
	found, err := ownedPart(&fresh.Status)
	if err != nil {
		return err
	}
	known, err := ownedPart(&c.topology.Status)
	if err != nil {
		return err
	}
	if !bytes.Equal(found, known) && !bytes.Equal(found, sent) {
		return errOverwritten
	}
	return nil
}

var (
	errEpochOver = errors.New("the topology has been edited")
	// errOverwritten means that somebody else has published a status, perhaps a hub manager that has taken over. The
	// caller has to read the topology again.
	errOverwritten = errors.New("somebody else has published a status")
)

// observe sets the metrics to what was published.
func (c *change) observe() {
	phases.Reset()
	phases.WithLabelValues(string(c.topology.Status.Phase)).Set(1)
	epochs.WithLabelValues("topology").Set(float64(c.topology.Generation))
	epochs.WithLabelValues("fence").Set(float64(c.topology.Status.FencedEpoch))
}

// isBlocked reports whether the status says that an epoch is blocked.
func isBlocked(status *cellplanev1alpha1.CellTopologyStatus, epoch int64) bool {
	settled := meta.FindStatusCondition(status.Conditions, names.TopologySettled)
	return settled != nil && settled.Reason == reasonBlocked && settled.ObservedGeneration == epoch
}

// publishBlocked publishes what blocks a change.
func (c *Controller) publishBlocked(ctx context.Context, topology *cellplanev1alpha1.CellTopology, problem error) {
	c.event(topology, corev1.EventTypeWarning, reasonBlocked, "Rebalance", "%v", problem)
	change := &change{Controller: c, topology: topology}
	status := change.status()
	setSettled(status, topology.Generation, metav1.ConditionFalse, reasonBlocked, problem.Error())
	_ = change.publish(ctx, status) // the problem is logged too
}

func (c *Controller) event(about runtime.Object, kind, reason, action, message string, args ...any) {
	if c.Events != nil {
		c.Events.Eventf(about, nil, kind, reason, action, message, args...)
	}
}
