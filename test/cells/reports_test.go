package cells

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/testenv"
)

// waitMetric waits until a metric is within bounds.
func (w *world) waitMetric(read func(ctx context.Context) ([]byte, error), metric string, least, most float64) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("%s is between %v and %v", metric, least, most), func(ctx context.Context) (bool, error) {
		sum, found, err := sumMetric(ctx, read, metric)
		if err != nil {
			return false, err
		}
		return found && sum >= least && sum <= most, fmt.Errorf("it is %v (%v)", sum, found)
	})
}

// sumMetric adds up the samples of a metric with some labels, given as "name{label=value,label=value}".
func sumMetric(ctx context.Context, read func(context.Context) ([]byte, error), metric string) (sum float64, found bool, err error) {
	text, err := read(ctx)
	if err != nil {
		return 0, false, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, false, err
	}
	name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	for _, sample := range families[name].GetMetric() {
		if labels == "" || hasLabels(sample, labels) {
			sum, found = sum+sample.GetCounter().GetValue()+sample.GetGauge().GetValue()+float64(sample.GetHistogram().GetSampleCount()), true
		}
	}
	return sum, found, nil
}

func hasLabels(sample *dto.Metric, labels string) bool {
	for want := range strings.SplitSeq(labels, ",") {
		if !slices.ContainsFunc(sample.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want }) {
			return false
		}
	}
	return true
}

// hubManagerMetrics reads the metrics of the hub manager.
func (w *world) hubManagerMetrics(ctx context.Context) ([]byte, error) {
	var state struct {
		PartPorts map[string]int `json:"partPorts"`
	}
	content, err := os.ReadFile(filepath.Join(w.dir, "federation.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", state.PartPorts["hub-manager"]), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// gatewayMetrics reads the metrics of the gateway.
func (w *world) gatewayMetrics(ctx context.Context) ([]byte, error) {
	return w.gateway.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
}

// waitEvent waits for an event about an object of the hub whose message contains a text.
func (w *world) waitEvent(kind, name, reason, words string) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("event %s of %s %s with %q", reason, kind, name, words), func(ctx context.Context) (bool, error) {
		events, err := w.hub.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason && strings.Contains(e.Message, words)
		}), nil
	})
}

// counters tell whether a hub manager may have missed a step. It starts to count from zero after a restart, for example because it lost
// its lease on a busy machine, and does not count a step if the answer of the store was lost.
type counters struct{ begun, slotFailures, failures float64 }

// counters returns those of the running hub manager.
func (w *world) counters() (c counters) {
	w.Helper()
	for metric, value := range map[string]*float64{
		"process_start_time_seconds":              &c.begun,
		"cellplane_rebalance_slot_failures_total": &c.slotFailures,
		"cellplane_topology_failures_total":       &c.failures,
	} {
		testenv.Eventually(w, "the hub manager has "+metric, func(ctx context.Context) (found bool, err error) {
			*value, found, err = sumMetric(ctx, w.hubManagerMetrics, metric)
			return found, err
		})
	}
	return c
}

// checkStepsCounted checks that each moved object was counted once since the first change began.
func (w *world) checkStepsCounted(moved float64, before counters) {
	w.Helper()
	least := moved
	if now := w.counters(); now != before {
		w.Logf("the hub manager may have missed moved objects: before %+v, now %+v", before, now)
		least = 0
	}
	testenv.Eventually(w, fmt.Sprintf("between %v and %v objects are counted", least, moved), func(ctx context.Context) (bool, error) {
		activated, _, err := sumMetric(ctx, w.hubManagerMetrics, "cellplane_rebalance_steps_total{step=activate}")
		if err != nil {
			return false, err
		}
		discarded, _, err := sumMetric(ctx, w.hubManagerMetrics, "cellplane_rebalance_steps_total{step=discard}") // the new cell had an object of that name
		sum := activated + discarded
		return err == nil && sum >= least && sum <= moved, errors.Join(fmt.Errorf("it is %v", sum), err)
	})
}

// checkChangeReported checks that status, conditions, metrics and events report as many moved objects as the command did. The change must
// have been the first one.
func (w *world) checkChangeReported(moved string, before counters) {
	w.Helper()
	topology := w.topology(w.Context())
	if change := topology.Status.Change; change == nil || fmt.Sprint(change.MovedObjects) != moved || change.TotalObjects != change.MovedObjects {
		w.Errorf("the status has %+v, the command reported %s objects", change, moved)
	}
	settled := meta.FindStatusCondition(topology.Status.Conditions, names.TopologySettled)
	if settled == nil || settled.ObservedGeneration != topology.Generation || !strings.HasPrefix(settled.Message, "no change is under way") {
		w.Errorf("after the change the condition is %+v", settled)
	}
	count, err := strconv.ParseFloat(moved, 64)
	if err != nil {
		w.Fatal(err)
	}
	w.waitMetric(w.hubManagerMetrics, "cellplane_rebalance_objects{state=moved}", count, count)
	w.waitMetric(w.hubManagerMetrics, "cellplane_rebalance_objects{state=moving}", 0, 0)
	w.waitMetric(w.hubManagerMetrics, "cellplane_rebalance_objects{state=waiting}", 0, 0)
	w.checkStepsCounted(count, before)
	w.waitMetric(w.hubManagerMetrics, "cellplane_topology_phase{phase=Stable}", 1, 1)
	w.waitMetric(w.hubManagerMetrics, "cellplane_topology_epoch{of=fence}", float64(topology.Generation), float64(topology.Generation))
	for _, pair := range []string{"cell=cell-a,keeper=cell-b", "cell=cell-b,keeper=cell-a", "cell=cell-c,keeper=cell-a"} {
		w.waitMetric(w.hubManagerMetrics, "cellplane_backup_copy_seconds{"+pair+"}", 1, math.Inf(1))
		w.waitMetric(w.hubManagerMetrics, "cellplane_backup_lag_seconds{"+pair+"}", 0, 30)
	}
	w.waitMetric(w.gatewayMetrics, "cellplane_gateway_held_requests", 0, 0)
	w.waitEvent("CellTopology", v1alpha1.CellTopologyName, "Moving", "join cell-c")
	w.waitEvent("CellTopology", v1alpha1.CellTopologyName, "Moved", moved+" objects have moved in")
}

// checkMoveReported checks that metrics and the condition report moving objects.
func (w *world) checkMoveReported() {
	w.Helper()
	w.waitMetric(w.hubManagerMetrics, "cellplane_rebalance_objects{state=moving}", 1, math.Inf(1))
	w.waitMetric(w.hubManagerMetrics, "cellplane_rebalance_objects{state=waiting}", 1, math.Inf(1))
	w.waitMetric(w.hubManagerMetrics, "cellplane_topology_phase{phase=Moving}", 1, 1)
	w.waitSettledCondition(metav1.ConditionFalse, "Moving", "leave cell-c")
}

// checkHeldWriteReported writes to a frozen object that no mover processes, and checks that the metrics of the gateway report the held
// request, and then its refusal.
func (w *world) checkHeldWriteReported(path string) {
	w.Helper()
	defer w.logDuration("a write is held, and refused")()
	answered, ctx := make(chan error, 1), w.Context()
	go func() {
		answered <- w.gateway.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).
			Body([]byte(`{"metadata":{"annotations":{"held":"yes"}}}`)).MaxRetries(0).Do(ctx).Error()
	}()
	w.waitMetric(w.gatewayMetrics, "cellplane_gateway_held_requests", 1, 1)
	if err := <-answered; !apierrors.IsTooManyRequests(err) {
		w.Errorf("a write to %s, which is frozen: %v, want 429", path, err)
	}
	w.waitMetric(w.gatewayMetrics, "cellplane_gateway_held_refused_total", 1, math.Inf(1))
	w.waitMetric(w.gatewayMetrics, "cellplane_gateway_held_duration_seconds", 1, math.Inf(1))
	w.waitMetric(w.gatewayMetrics, "cellplane_gateway_held_requests", 0, 0)
}

// waitSettledCondition waits until the condition Settled of the topology has a status and reason, and a text in its message.
func (w *world) waitSettledCondition(status metav1.ConditionStatus, reason, words string) {
	w.Helper()
	testenv.Eventually(w, "the topology has the reason "+reason+" with "+words, func(ctx context.Context) (bool, error) {
		settled := meta.FindStatusCondition(w.topology(ctx).Status.Conditions, names.TopologySettled)
		if settled == nil {
			return false, errors.New("there is no such condition")
		}
		return settled.Status == status && settled.Reason == reason && strings.Contains(settled.Message, words), fmt.Errorf("it is %+v", *settled)
	})
}

// checkFailoverReported checks that conditions, metrics and events report each phase of a failover.
func (w *world) checkFailoverReported(cell string) {
	w.Helper()
	w.waitMetric(w.hubManagerMetrics, "cellplane_failover_promoted_objects_total{cell="+cell+"}", 1, math.Inf(1))
	for condition, reason := range map[string]string{names.CellFenced: "IdentityRevoked", names.CellPromoted: "BackupPromoted"} {
		w.waitMetric(w.hubManagerMetrics, fmt.Sprintf("cellplane_failover_phases_total{cell=%s,condition=%s,reason=%s}", cell, condition, reason), 1, math.Inf(1))
		w.waitEvent("Cell", cell, reason, "")
		testenv.Eventually(w, fmt.Sprintf("the Cell %s has the reason %s", cell, reason), func(ctx context.Context) (bool, error) {
			got := meta.FindStatusCondition(w.cell(ctx, cell).Status.Conditions, condition)
			return got != nil && got.Status == metav1.ConditionTrue && got.Reason == reason, fmt.Errorf("it is %+v", got)
		})
	}
}
