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

// tells waits until what a part counts is within bounds.
func (w *world) tells(read func(ctx context.Context) ([]byte, error), metric string, least, most float64) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("%s is between %v and %v", metric, least, most), func(ctx context.Context) (bool, error) {
		sum, found, err := counted(ctx, read, metric)
		if err != nil {
			return false, err
		}
		return found && sum >= least && sum <= most, fmt.Errorf("it is %v (%v)", sum, found)
	})
}

// counted returns what a part counts in all samples of a metric that have some labels, "name{label=value,label=value}".
func counted(ctx context.Context, read func(context.Context) ([]byte, error), metric string) (sum float64, found bool, err error) {
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

// ofHubManager reads the metrics of the hub manager.
func (w *world) ofHubManager(ctx context.Context) ([]byte, error) {
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

// ofGateway reads the metrics of the gateway.
func (w *world) ofGateway(ctx context.Context) ([]byte, error) {
	return w.gateway.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
}

// saysOf waits for an event about an object of the hub that holds some words.
func (w *world) saysOf(kind, name, reason, words string) {
	w.Helper()
	testenv.Eventually(w, fmt.Sprintf("an event %s tells of %s %s: %s", reason, kind, name, words), func(ctx context.Context) (bool, error) {
		events, err := w.hub.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason && strings.Contains(e.Message, words)
		}), nil
	})
}

// counting is by what one can tell whether a hub manager has counted everything: it counts anew when it is started again, as one is that
// loses its lease on a busy machine, and does not count a step if the answer of the store was lost.
type counting struct{ begun, slotFailures, failures float64 }

// counting returns that of the hub manager that runs.
func (w *world) counting() (c counting) {
	w.Helper()
	for metric, value := range map[string]*float64{
		"process_start_time_seconds":              &c.begun,
		"cellplane_rebalance_slot_failures_total": &c.slotFailures,
		"cellplane_topology_failures_total":       &c.failures,
	} {
		testenv.Eventually(w, "the hub manager tells "+metric, func(ctx context.Context) (found bool, err error) {
			*value, found, err = counted(ctx, w.ofHubManager, metric)
			return found, err
		})
	}
	return c
}

// countsEach expects that each object which has moved was counted once since the first change began.
func (w *world) countsEach(moved float64, before counting) {
	w.Helper()
	least := moved
	if now := w.counting(); now != before {
		w.Logf("the hub manager may have counted less than has moved: at first %+v, now %+v", before, now)
		least = 0
	}
	testenv.Eventually(w, fmt.Sprintf("between %v and %v objects are counted", least, moved), func(ctx context.Context) (bool, error) {
		activated, _, err := counted(ctx, w.ofHubManager, "cellplane_rebalance_steps_total{step=activate}")
		if err != nil {
			return false, err
		}
		discarded, _, err := counted(ctx, w.ofHubManager, "cellplane_rebalance_steps_total{step=discard}") // the new cell had one of its own
		sum := activated + discarded
		return err == nil && sum >= least && sum <= moved, errors.Join(fmt.Errorf("it is %v", sum), err)
	})
}

// toldOfChange expects status, conditions, metrics and events to tell of the change that has just been made as the command has: so many
// objects have moved. It was the first one.
func (w *world) toldOfChange(moved string, before counting) {
	w.Helper()
	topology := w.topology(w.Context())
	if change := topology.Status.Change; change == nil || fmt.Sprint(change.MovedObjects) != moved || change.TotalObjects != change.MovedObjects {
		w.Errorf("the status tells of %+v, the command of %s objects", change, moved)
	}
	settled := meta.FindStatusCondition(topology.Status.Conditions, names.TopologySettled)
	if settled == nil || settled.ObservedGeneration != topology.Generation || !strings.HasPrefix(settled.Message, "no change is under way") {
		w.Errorf("after the change the topology tells %+v", settled)
	}
	count, err := strconv.ParseFloat(moved, 64)
	if err != nil {
		w.Fatal(err)
	}
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=moved}", count, count)
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=moving}", 0, 0)
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=waiting}", 0, 0)
	w.countsEach(count, before)
	w.tells(w.ofHubManager, "cellplane_topology_phase{phase=Stable}", 1, 1)
	w.tells(w.ofHubManager, "cellplane_topology_epoch{of=fence}", float64(topology.Generation), float64(topology.Generation))
	for _, pair := range []string{"cell=cell-a,keeper=cell-b", "cell=cell-b,keeper=cell-a", "cell=cell-c,keeper=cell-a"} {
		w.tells(w.ofHubManager, "cellplane_backup_lag_seconds{"+pair+"}", 1, math.Inf(1))
	}
	w.tells(w.ofGateway, "cellplane_gateway_held_requests", 0, 0)
	w.saysOf("CellTopology", v1alpha1.CellTopologyName, "Moving", "join cell-c")
	w.saysOf("CellTopology", v1alpha1.CellTopologyName, "Moved", moved+" objects have moved in")
}

// toldOfMove expects metrics and the condition to tell that objects are on their way.
func (w *world) toldOfMove() {
	w.Helper()
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=moving}", 1, math.Inf(1))
	w.tells(w.ofHubManager, "cellplane_rebalance_objects{state=waiting}", 1, math.Inf(1))
	w.tells(w.ofHubManager, "cellplane_topology_phase{phase=Moving}", 1, 1)
	w.isSettled(metav1.ConditionFalse, "Moving", "leave cell-c")
}

// toldOfHeld writes to an object on its way that nobody moves on, and expects the gateway to tell that it holds the request, and then that
// it has refused it.
func (w *world) toldOfHeld(path string) {
	w.Helper()
	defer w.took("a write is held, and refused")()
	answered, ctx := make(chan error, 1), w.Context()
	go func() {
		answered <- w.gateway.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).
			Body([]byte(`{"metadata":{"annotations":{"held":"yes"}}}`)).MaxRetries(0).Do(ctx).Error()
	}()
	w.tells(w.ofGateway, "cellplane_gateway_held_requests", 1, 1)
	if err := <-answered; !apierrors.IsTooManyRequests(err) {
		w.Errorf("a write to %s, which is on its way: %v, want 429", path, err)
	}
	w.tells(w.ofGateway, "cellplane_gateway_held_refused_total", 1, math.Inf(1))
	w.tells(w.ofGateway, "cellplane_gateway_held_duration_seconds", 1, math.Inf(1))
	w.tells(w.ofGateway, "cellplane_gateway_held_requests", 0, 0)
}

// isSettled waits until the condition of the topology has a reason and holds some words.
func (w *world) isSettled(status metav1.ConditionStatus, reason, words string) {
	w.Helper()
	testenv.Eventually(w, "the topology tells of "+reason+", "+words, func(ctx context.Context) (bool, error) {
		settled := meta.FindStatusCondition(w.topology(ctx).Status.Conditions, names.TopologySettled)
		if settled == nil {
			return false, errors.New("it has no such condition")
		}
		return settled.Status == status && settled.Reason == reason && strings.Contains(settled.Message, words), fmt.Errorf("it tells %+v", *settled)
	})
}

// toldOfLoss expects conditions, metrics and events to tell of each phase of a takeover.
func (w *world) toldOfLoss(cell string) {
	w.Helper()
	w.tells(w.ofHubManager, "cellplane_failover_promoted_objects_total{cell="+cell+"}", 1, math.Inf(1))
	for condition, reason := range map[string]string{names.CellFenced: "IdentityRevoked", names.CellPromoted: "BackupPromoted"} {
		w.tells(w.ofHubManager, fmt.Sprintf("cellplane_failover_phases_total{cell=%s,condition=%s,reason=%s}", cell, condition, reason), 1, math.Inf(1))
		w.saysOf("Cell", cell, reason, "")
		testenv.Eventually(w, fmt.Sprintf("the Cell %s tells of %s", cell, reason), func(ctx context.Context) (bool, error) {
			told := meta.FindStatusCondition(w.cell(ctx, cell).Status.Conditions, condition)
			return told != nil && told.Status == metav1.ConditionTrue && told.Reason == reason, fmt.Errorf("it tells %+v", told)
		})
	}
}
