package views

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/internal/limits"
)

func TestCombine(t *testing.T) {
	answer := func(taken, resend bool, wanted string) reportAnswer {
		report := &metricsv1alpha1.MetricsReport{}
		report.Status.Resend = resend
		if wanted != "" {
			report.Status.Wanted = &metricsv1alpha1.WantedMetrics{Version: wanted}
		}
		return reportAnswer{report: report, taken: taken}
	}
	none := reportAnswer{}
	for _, test := range []struct {
		what    string
		answers []reportAnswer
		fails   bool
		resend  bool
		wanted  string
	}{
		{"both have it", []reportAnswer{answer(true, false, ""), answer(true, false, "")}, false, false, ""},
		{"one has just started", []reportAnswer{answer(true, false, ""), answer(true, true, "w")}, false, true, "w"},
		{"one does not answer", []reportAnswer{none, answer(true, false, "w")}, false, false, "w"},
		{"another share knows what is wanted", []reportAnswer{answer(false, false, "w"), answer(true, false, "")}, false, false, "w"},
		{"no share shows the cluster", []reportAnswer{answer(false, false, "w")}, true, false, ""},
		{"none answers", []reportAnswer{none, none}, true, false, ""},
		{"the report is wrong", []reportAnswer{answer(true, false, ""), {refused: errors.New("wrong")}}, true, false, ""},
	} {
		got, err := combine("m1", test.answers)
		if (err != nil) != test.fails {
			t.Errorf("%s: %v", test.what, err)
		}
		if err != nil {
			if test.what == "none answers" && !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%s: %v", test.what, err)
			}
			continue
		}
		wanted := ""
		if got.Status.Wanted != nil {
			wanted = got.Status.Wanted.Version
		}
		if got.Status.Resend != test.resend || wanted != test.wanted || got.Name != "m1" {
			t.Errorf("%s: %+v", test.what, got)
		}
	}
}

// TestReportsCountAsMemory checks that the answers of cluster-gateways to a report, which have the metrics of all autoscalers, are held within the
// budget of the caller.
func TestReportsCountAsMemory(t *testing.T) {
	wanted := &metricsv1alpha1.WantedMetrics{Version: "w", Workloads: slices.Repeat([]metricsv1alpha1.WantedWorkload{{NamespacedWorkload: metricsv1alpha1.NamespacedWorkload{Namespace: strings.Repeat("n", 60)}}}, 20_000)}
	answer, err := json.Marshal(&metricsv1alpha1.MetricsReport{Status: metricsv1alpha1.MetricsReportStatus{Wanted: wanted}})
	if err != nil {
		t.Fatal(err)
	}
	upstream := newUpstream(t, "m1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	}))
	budget := limits.NewBudget(1<<30, time.Second)
	grant := budget.Open(limits.Owner{Name: "system:karmada:agent:m1"})
	defer grant.Close()
	reports := &Reports{Views: &Views{shares: []*share{{replicas: []*replica{{upstream: upstream}}}}}}
	r := httptest.NewRequestWithContext(limits.WithGrant(t.Context(), grant), http.MethodPost, "/", strings.NewReader("{}"))
	recorder := httptest.NewRecorder()
	reports.report(recorder, r, "m1")
	if recorder.Code != http.StatusCreated || grant.Held() < int64(len(answer)) {
		t.Errorf("answered %d, and held are %d bytes, want at least %d", recorder.Code, grant.Held(), len(answer))
	}
}
