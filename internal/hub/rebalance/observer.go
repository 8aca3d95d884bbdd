package rebalance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/hub/cellstatus"
)

// Observer publishes the condition Ready and object counts in the status of Cells.
type Observer struct {
	// Hub reads Cells and writes their status.
	Hub client.Client
	// Cells are the connections to them.
	Cells *Connections

	mu     sync.Mutex
	counts map[string]*counted
}

// counted is the last count of a cell's objects.
type counted struct {
	objects *cellplanev1alpha1.CellObjects // nil until the first count has succeeded
	next    time.Time
	running bool
}

const (
	observeInterval = 5 * time.Second
	observeTimeout  = 4 * time.Second
	// maxCountInterval bounds the time between two counts of the objects of a cell.
	maxCountInterval = 5 * time.Minute
	// countPatience is how long an observation waits for a count. A count that takes longer is published later.
	countPatience = time.Second
)

// The reasons of the condition Ready of a Cell.
const (
	reasonAnswers      = "Answers"
	reasonDoesNotServe = "DoesNotServe"
	reasonUnreachable  = "Unreachable"
	reasonStoreAlarm   = "StoreAlarm"
)

// Run observes the cells until the context ends.
func (o *Observer) Run(ctx context.Context) error {
	o.counts = map[string]*counted{}
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
	if ready.Status == metav1.ConditionTrue {
		if objects := o.countedObjects(ctx, cell.Name); objects != nil {
			status.Objects = objects
		}
	}
	if !changed && status.Version == cell.Status.Version && ptr.Equal(status.Objects, cell.Status.Objects) && cell.Status.ObservedGeneration == cell.Generation {
		return nil
	}
	status.Conditions = []metav1.Condition{*meta.FindStatusCondition(conditions, names.CellReady)}
	status.ObservedGeneration = cell.Generation
	return cellstatus.Apply(ctx, o.Hub, cell, "cellplane-observe", status)
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
	alarms, err := connection.store.Client().AlarmList(ctx)
	if err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonUnreachable, Message: fmt.Sprintf("the store does not report its alarms: %v", err)}
	}
	if message := describeAlarms(alarms.Alarms); message != "" {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonStoreAlarm, Message: message}
	}
	if _, err := connection.reader.client.Verb(http.MethodGet).AbsPath("/readyz").DoRaw(ctx); err != nil {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonDoesNotServe, Message: "the API server is not ready"}
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonAnswers, Message: "the API server and the store answer"}
}

// describeAlarms says what the alarms of a store mean; it is empty without alarms.
func describeAlarms(alarms []*etcdserverpb.AlarmMember) string {
	var messages []string
	for _, alarm := range alarms {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NONE:
		case etcdserverpb.AlarmType_NOSPACE:
			messages = append(messages, fmt.Sprintf("member %x of the store has reached its quota and refuses writes; compact and defragment it, then disarm the alarm", alarm.MemberID))
		case etcdserverpb.AlarmType_CORRUPT:
			messages = append(messages, fmt.Sprintf("the data of member %x of the store is corrupt; replace the member", alarm.MemberID))
		default:
			messages = append(messages, fmt.Sprintf("member %x of the store has the alarm %s", alarm.MemberID, alarm.Alarm))
		}
	}
	return strings.Join(messages, "; ")
}

// countedObjects returns the last count of a cell's objects, and starts the next one if it is due. It waits for that only for a
// short time: reading a large cell must not delay its condition or other cells.
func (o *Observer) countedObjects(ctx context.Context, cell string) *cellplanev1alpha1.CellObjects {
	o.mu.Lock()
	last := o.counts[cell]
	if last == nil {
		last = &counted{}
		o.counts[cell] = last
	}
	due := !last.running && !time.Now().Before(last.next)
	last.running = last.running || due
	o.mu.Unlock()
	if due {
		done := make(chan struct{})
		go func() {
			defer close(done)
			o.recount(ctx, cell, last)
		}()
		select {
		case <-done:
		case <-time.After(countPatience):
		case <-ctx.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return last.objects
}

// recount counts the objects of a cell. If that fails, the last count stays.
func (o *Observer) recount(ctx context.Context, cell string, last *counted) {
	began := time.Now()
	objects, err := o.count(ctx, cell)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(1).Info("counting the objects of a cell failed", "cell", cell, "err", err.Error())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	last.running, last.next = false, began.Add(countInterval(time.Since(began)))
	if err == nil {
		last.objects = objects
	}
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
