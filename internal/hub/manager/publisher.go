package manager

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
	"github.com/cellplane/cellplane/internal/hub/replicate"
)

// The reasons of names.CellGlobalsCopied.
const (
	reasonCaughtUp      = "CaughtUp"
	reasonCopying       = "Copying"
	reasonObstacles     = "Obstacles"
	reasonOutOfContact  = "OutOfContact"
	reasonAnotherHub    = "BelongsToAnotherHub"
	reasonNotConnecting = "CannotConnect"
)

const (
	publishInterval = time.Second
	// tolerableLag is how far a cell that had caught up may fall behind before its condition changes. Without it the condition would
	// flap with every change on the hub.
	tolerableLag = 10 * time.Second
	// maxNamed is how many obstacles a condition names.
	maxNamed = 3
)

// publisher keeps the condition of every Cell up to date.
type publisher struct {
	client  client.Client
	status  func() map[string]replicate.Status
	problem func(cell string) error
}

func (p *publisher) run(ctx context.Context) error {
	ticker := time.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "publishing the state of the cells failed, will retry")
		}
	}
}

func (p *publisher) publish(ctx context.Context) error {
	var all cellplanev1alpha1.CellList
	if err := p.client.List(ctx, &all); err != nil {
		return fmt.Errorf("listing cells: %w", err)
	}
	status := p.status()
	for i := range all.Items {
		cell := &all.Items[i]
		current, known := status[cell.Name]
		var wanted metav1.Condition
		switch problem := p.problem(cell.Name); {
		case problem != nil:
			wanted = metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonNotConnecting, Message: problem.Error()}
		case known:
			wanted = condition(current, meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellGlobalsCopied))
		default:
			continue // it has not been reconciled yet
		}
		if err := p.set(ctx, cell, wanted); err != nil {
			return fmt.Errorf("publishing the state of cell %s: %w", cell.Name, err)
		}
	}
	return nil
}

// condition returns the condition for a state. It stays the same while the state does. caughtUp is whether the condition was true before.
func condition(s replicate.Status, caughtUp bool) metav1.Condition {
	serious := make([]string, 0, maxNamed)
	count := 0
	for _, obstacle := range s.Obstacles {
		if obstacle.Harmless() {
			continue
		}
		if count++; count <= maxNamed {
			serious = append(serious, fmt.Sprintf("%s %s: %s", obstacle.Kind, obstacle.Object, obstacle.Message))
		}
	}
	if count > maxNamed {
		serious = append(serious, fmt.Sprintf("and %d more", count-maxNamed))
	}
	switch {
	case s.Phase == replicate.Refused:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonAnotherHub, Message: s.Reason}
	case s.Phase == replicate.OutOfContact:
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reasonOutOfContact, Message: s.Reason}
	case s.Phase == replicate.Syncing:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonCopying, Message: "The cell is being compared with the hub."}
	case count > 0:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonObstacles, Message: strings.Join(serious, "; ")}
	case !s.CaughtUp() && (!caughtUp || s.Lag > tolerableLag):
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonCopying, Message: "The cell is behind the hub."}
	default:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonCaughtUp, Message: "The cell has the global objects of the hub."}
	}
}

// set writes the condition if it has changed. It owns no other condition.
func (p *publisher) set(ctx context.Context, cell *cellplanev1alpha1.Cell, wanted metav1.Condition) error {
	wanted.Type = names.CellGlobalsCopied
	wanted.ObservedGeneration = cell.Generation
	conditions := append([]metav1.Condition(nil), cell.Status.Conditions...)
	if !meta.SetStatusCondition(&conditions, wanted) {
		return nil
	}
	return cellstatus.Apply(ctx, p.client, cell, "cellplane-replicate", cellstatus.Of(conditions, names.CellGlobalsCopied))
}
