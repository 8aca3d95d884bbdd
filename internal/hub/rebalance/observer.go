package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// Observer publishes the condition Ready and object counts in the status of Cells.
type Observer struct {
	// Hub reads Cells and writes their status.
	Hub client.Client
	// Cells are the connections to them.
	Cells *Connections

	nextCount map[string]time.Time
	mu        sync.Mutex
}

const (
	observeInterval = 5 * time.Second
	observeTimeout  = 4 * time.Second
	// maxCountInterval bounds the time between two counts of the objects of a cell.
	maxCountInterval = 5 * time.Minute
)

// The reasons of the condition Ready of a Cell.
const (
	reasonAnswers      = "Answers"
	reasonDoesNotServe = "DoesNotServe"
	reasonUnreachable  = "Unreachable"
)

// Run observes the cells until the context ends.
func (o *Observer) Run(ctx context.Context) error {
	o.nextCount = map[string]time.Time{}
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		var all cellplanev1alpha1.CellList
		if err := o.Hub.List(ctx, &all); err == nil {
			var group sync.WaitGroup
			for i := range all.Items {
				group.Go(func() {
					if err := o.observe(ctx, &all.Items[i]); err != nil && ctx.Err() == nil {
						klog.FromContext(ctx).V(1).Info("publishing the status of a cell failed", "cell", all.Items[i].Name, "err", err.Error())
					}
				})
			}
			group.Wait()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// observe probes a cell and publishes its status.
func (o *Observer) observe(ctx context.Context, cell *cellplanev1alpha1.Cell) error {
	status := cellplanev1alpha1.CellStatus{Version: cell.Status.Version, Objects: cell.Status.Objects}
	ready := o.probe(ctx, cell.Name, &status)
	ready.Type, ready.ObservedGeneration = names.CellReady, cell.Generation
	conditions := append([]metav1.Condition(nil), cell.Status.Conditions...)
	changed := meta.SetStatusCondition(&conditions, ready)
	if ready.Status == metav1.ConditionTrue && o.due(cell.Name) {
		began := time.Now()
		counts, err := o.count(ctx, cell.Name)
		o.setNextCount(cell.Name, began.Add(countInterval(time.Since(began))))
		if err != nil {
			return err
		}
		status.Objects = counts
	}
	if !changed && status.Version == cell.Status.Version && ptr.Equal(status.Objects, cell.Status.Objects) && cell.Status.ObservedGeneration == cell.Generation {
		return nil
	}
	status.Conditions = []metav1.Condition{*meta.FindStatusCondition(conditions, names.CellReady)}
	status.ObservedGeneration = cell.Generation
	patch, err := json.Marshal(map[string]any{
		"apiVersion": cellplanev1alpha1.GroupVersion.String(), "kind": "Cell",
		"metadata": map[string]any{"name": cell.Name, "uid": cell.UID},
		"status":   status,
	})
	if err != nil {
		return err
	}
	target := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}}
	err = o.Hub.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, patch), &client.SubResourcePatchOptions{
		PatchOptions: client.PatchOptions{FieldManager: "cellplane-observe", Force: ptr.To(true)},
	})
	return client.IgnoreNotFound(err)
}

// probe probes the API server and the store.
func (o *Observer) probe(ctx context.Context, name string, status *cellplanev1alpha1.CellStatus) metav1.Condition {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	connection, err := o.Cells.to(ctx, name)
	if err != nil {
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reasonUnreachable, Message: err.Error()}
	}
	body, err := connection.reader.client.Verb(http.MethodGet).AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: reasonUnreachable, Message: fmt.Sprintf("the API server does not answer: %v", err)}
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err == nil {
		status.Version = info.GitVersion
	}
	if _, err := connection.store.Revision(ctx); err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonUnreachable, Message: fmt.Sprintf("the store does not answer: %v", err)}
	}
	if _, err := connection.reader.client.Verb(http.MethodGet).AbsPath("/readyz").DoRaw(ctx); err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonDoesNotServe, Message: "the API server is not ready"}
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonAnswers, Message: "the API server and the store answer"}
}

// due reports whether the objects of a cell have to be counted.
func (o *Observer) due(cell string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !time.Now().Before(o.nextCount[cell])
}

func (o *Observer) setNextCount(cell string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nextCount[cell] = at
}

// countInterval returns how long to wait after a count that took the given time. Counting reads all objects of a cell:
// a small cell is counted with every observation, a large one so seldom that it takes at most half a percent of the time.
func countInterval(took time.Duration) time.Duration { return min(200*took, maxCountInterval) }

// count counts the objects of a cell without stale copies.
func (o *Observer) count(ctx context.Context, cell string) (*cellplanev1alpha1.CellObjects, error) {
	store, err := o.Cells.Store(ctx, cell)
	if err != nil {
		return nil, err
	}
	var counts cellplanev1alpha1.CellObjects
	for kv, err := range store.Range(ctx, store.Prefix(), 0) {
		if err != nil {
			return nil, err
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil || object.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated {
			continue
		}
		switch class, _ := cellstore.Classify(object); class {
		case cellstore.Template:
			counts.Templates++
		case cellstore.Binding:
			counts.Bindings++
		case cellstore.Work:
			counts.Works++
		case cellstore.Local:
		}
	}
	return &counts, nil
}
