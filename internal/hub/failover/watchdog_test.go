package failover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/quorum"
)

func TestWatchdog(t *testing.T) {
	type probe struct {
		second    int
		answering []string
		silent    []string
		failed    int
		want      string
	}
	for _, test := range []struct {
		name   string
		after  time.Duration
		probes []probe
	}{
		{"off", 0, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {1000, []string{"a"}, []string{"b"}, 0, ""}}},
		{"unreachable for long enough", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a"}, []string{"b"}, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"answers in between", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {59, []string{"a", "b"}, nil, 0, ""}, {60, []string{"a"}, []string{"b"}, 0, ""}, {119, []string{"a"}, []string{"b"}, 0, ""}, {120, []string{"a"}, []string{"b"}, 0, "b"}}},
		{"two at once may be a local fault", time.Minute, []probe{{0, []string{"a"}, []string{"b", "c"}, 0, ""}, {90, []string{"a"}, []string{"b", "c"}, 0, ""}, {91, []string{"a", "c"}, []string{"b"}, 0, ""}, {150, []string{"a", "c"}, []string{"b"}, 0, ""}, {151, []string{"a", "c"}, []string{"b"}, 0, "b"}}},
		{"a local outage ends during a probe", time.Minute, []probe{{0, nil, []string{"a", "b"}, 0, ""}, {90, []string{"b"}, []string{"a"}, 0, ""}, {91, []string{"a", "b"}, nil, 0, ""}}},
		{"one after the other", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 0, ""}, {50, []string{"b"}, []string{"a"}, 0, ""}, {100, []string{"a"}, []string{"b"}, 0, ""}}},
		{"nobody answers", time.Minute, []probe{{0, nil, []string{"a"}, 0, ""}, {90, nil, []string{"a"}, 0, ""}}},
		{"one has failed already", time.Minute, []probe{{0, []string{"a"}, []string{"b"}, 1, ""}, {90, []string{"a"}, []string{"b"}, 1, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dog := Watchdog{After: test.after}
			for _, l := range test.probes {
				got := dog.See(time.Unix(int64(l.second), 0), Sighting{Answering: l.answering, Silent: l.silent, Failed: l.failed})
				if got.Fail != l.want {
					t.Fatalf("after %d s got %q, want %q", l.second, got.Fail, l.want)
				}
			}
		})
	}
}

// TestWatchdogAsksGateways lists who has to find a cell dead. Each gateway is "-" if it does not reach the cell, "+" if it does and "?" if
// it says nothing about it.
func TestWatchdogAsksGateways(t *testing.T) {
	for _, test := range []struct {
		gateways string
		fail     bool
	}{
		{"", true},
		{"-", true},
		{"+", false},
		{"?", false},
		{"+-", false},
		{"--", true},
		{"+--", true},
		{"++-", false},
		{"?+---", true},
		{"?+--", false},
	} {
		t.Run(test.gateways, func(t *testing.T) {
			s := Sighting{Answering: []string{"a"}, Silent: []string{"b"}}
			for i, says := range test.gateways {
				report := Report{Gateway: fmt.Sprintf("gateway-%d", i), Reached: []string{"a"}}
				switch says {
				case '+':
					report.Reached = append(report.Reached, "b")
				case '-':
					report.Unreached = []string{"b"}
				}
				s.Reports = append(s.Reports, report)
			}
			dog := Watchdog{After: time.Minute}
			dog.See(time.Unix(0, 0), s)
			if got := dog.See(time.Unix(59, 0), s); got != (Verdict{}) {
				t.Errorf("too early: %+v", got)
			}
			got := dog.See(time.Unix(60, 0), s)
			if (got.Fail == "b") != test.fail || (got.Blocked == "b") == test.fail {
				t.Errorf("got %+v", got)
			}
			if !test.fail && !strings.Contains(got.Why, "gateway-0") {
				t.Errorf("the reason does not name who reaches the cell: %s", got.Why)
			}
		})
	}
}

// TestLiveReports counts gateways whose reports change, by the time at which that is seen.
func TestLiveReports(t *testing.T) {
	var r Reports
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	names := func(second int, versions ...string) string {
		var reports []Report
		for i, version := range versions {
			if version != "" {
				reports = append(reports, Report{Gateway: fmt.Sprintf("g%d", i), version: version})
			}
		}
		live, gone := r.Live(at(second), reports)
		text := ""
		for _, report := range live {
			text += report.Gateway + " "
		}
		return strings.TrimSpace(text + "gone " + strings.Join(gone, " "))
	}
	for _, step := range []struct {
		second   int
		versions []string
		want     string
	}{
		{0, []string{"1", "1"}, "g0 g1 gone"},
		{15, []string{"2", "1"}, "g0 g1 gone"},
		{30, []string{"3", "1"}, "g0 gone"},
		{31, []string{"4", "2"}, "g0 g1 gone"},
		{40, []string{"5", ""}, "g0 gone"},
		{50, []string{"5", "2"}, "g0 g1 gone"}, // it is back
		{3630, []string{"5", "2"}, "gone"},
		{3640, []string{"5", "2"}, "gone g0"},
	} {
		if got := names(step.second, step.versions...); got != step.want {
			t.Errorf("after %d s: %q, want %q", step.second, got, step.want)
		}
	}
}

// TestReportIn reads the Lease of a gateway. A length that cannot be read counts as the longest.
func TestReportIn(t *testing.T) {
	for text, want := range map[string]time.Duration{"3s": 3 * time.Second, "10s": 10 * time.Second, "": quorum.MaxLength, "soon": quorum.MaxLength, "8760h": quorum.MaxLength} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "g", Annotations: map[string]string{
			names.WriterLeaseAnnotation: text, names.ReachedCellsAnnotation: "a,c", names.UnreachedCellsAnnotation: "b=2026-01-01T00:00:00Z",
		}}}
		got := reportIn(lease)
		if got.WriterLease != want || !slices.Equal(got.Reached, []string{"a", "c"}) || !slices.Equal(got.Unreached, []string{"b"}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := longestLease([]Report{{WriterLease: time.Second}}); got != quorum.DefaultLength {
		t.Errorf("shorter leases than the default last %v", got)
	}
	if got := longestLease([]Report{{WriterLease: time.Second}, {WriterLease: 10 * time.Second}}); got != 10*time.Second {
		t.Errorf("the longest lease lasts %v", got)
	}
}
