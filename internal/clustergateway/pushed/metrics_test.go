package pushed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// wanted are metrics of two workloads.
var wanted = &metricsv1alpha1.WantedMetrics{Workloads: []metricsv1alpha1.WantedWorkload{wish("a", "requests"), wish("z", "secret")}}

func wish(workload, metric string) metricsv1alpha1.WantedWorkload {
	return metricsv1alpha1.WantedWorkload{
		NamespacedWorkload: metricsv1alpha1.NamespacedWorkload{Namespace: "demo", WorkloadReference: item(workload, "1").Workload}, Metrics: []metricsv1alpha1.WantedMetric{{Name: metric}},
	}
}

func newMetrics(t *testing.T) *Metrics {
	t.Helper()
	store, err := clustercache.New(clustercache.Options{Kind: Kind()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &Metrics{
		Store: store, Keep: time.Minute,
		Shows:  func(cluster string) bool { return cluster != "elsewhere" },
		Wanted: func() *metricsv1alpha1.WantedMetrics { return wanted },
	}
}

// item returns the metrics of a Deployment that uses some CPU.
func item(name, cpu string) metricsv1alpha1.WorkloadMetrics {
	return metricsv1alpha1.WorkloadMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start)},
		Workload:   metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
		Timestamp:  metav1.NewTime(start), Pods: metricsv1alpha1.PodCounts{Total: 2, Ready: 1},
		Metrics: []metricsv1alpha1.MetricSums{{Resource: corev1.ResourceCPU, Measured: metricsv1alpha1.MeasuredPods{Pods: 1, Usage: resource.MustParse(cpu)}}},
	}
}

// held returns what is held of all clusters, as "name=cpu".
func held(t *testing.T, m *Metrics) string {
	t.Helper()
	list, err := m.Store.List(clustercache.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var all []string
	for object, err := range list.Objects() {
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := Decode(object.Raw)
		if err != nil {
			t.Fatal(err)
		}
		metrics := decoded.(*metricsv1alpha1.WorkloadMetrics)
		if metrics.Cluster != object.Cluster || metrics.Name != names.WorkloadMetricsName("Deployment", metrics.Workload.Name, object.Cluster) {
			t.Errorf("%s of cluster %s is of cluster %s", metrics.Name, object.Cluster, metrics.Cluster)
		}
		all = append(all, metrics.Name+"="+metrics.Metrics[0].Measured.Usage.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestReports follows the sessions of agents.
func TestReports(t *testing.T) {
	type spec = metricsv1alpha1.MetricsReportSpec
	items := func(all ...metricsv1alpha1.WorkloadMetrics) []metricsv1alpha1.WorkloadMetrics { return all }
	removed := []metricsv1alpha1.NamespacedWorkload{{Namespace: "demo", WorkloadReference: metricsv1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}}}
	m := newMetrics(t)
	for i, step := range []struct {
		what    string
		at      time.Duration
		cluster string
		spec    *spec // nil lets time pass
		resend  bool
		held    string
	}{
		{"a change of what is not known", 0, "m1", &spec{Session: "s", Sequence: 5, Items: items(item("a", "1"))}, true, ""},
		{"the first part of everything", 0, "m1", &spec{Session: "s", Sequence: 6, Begin: true, Items: items(item("a", "1"))}, false, "a-deployment.m1=1"},
		{"the last part", 0, "m1", &spec{Session: "s", Sequence: 7, End: true, Items: items(item("b", "2"))}, false, "a-deployment.m1=1 b-deployment.m1=2"},
		{"a change", 0, "m1", &spec{Session: "s", Sequence: 8, Items: items(item("b", "3"))}, false, "a-deployment.m1=1 b-deployment.m1=3"},
		{"a change that was overtaken", 0, "m1", &spec{Session: "s", Sequence: 7, Items: items(item("b", "2"))}, true, "a-deployment.m1=1 b-deployment.m1=3"},
		{"a gap", 0, "m1", &spec{Session: "s", Sequence: 10, Items: items(item("b", "2"))}, true, "a-deployment.m1=1 b-deployment.m1=3"},
		{"a removal", 0, "m1", &spec{Session: "s", Sequence: 9, Removed: removed}, false, "b-deployment.m1=3"},
		{"the same workload in another cluster", 0, "m2", &spec{Session: "o", Sequence: 1, Begin: true, End: true, Items: items(item("b", "7"))}, false, "b-deployment.m1=3 b-deployment.m2=7"},
		{"nothing new", 50 * time.Second, "m1", &spec{Session: "s", Sequence: 10}, false, "b-deployment.m1=3 b-deployment.m2=7"},
		{"a silent agent", 65 * time.Second, "m2", nil, false, "b-deployment.m1=3"},
		{"which speaks again", 66 * time.Second, "m2", &spec{Session: "o", Sequence: 2}, true, "b-deployment.m1=3"},
		{"another session", 67 * time.Second, "m1", &spec{Session: "t", Sequence: 1, Begin: true, End: true, Items: items(item("c", "4"))}, false, "c-deployment.m1=4"},
		{"the session before", 68 * time.Second, "m1", &spec{Session: "s", Sequence: 11, Items: items(item("b", "2"))}, true, "c-deployment.m1=4"},
		{"everything begins", 100 * time.Second, "m1", &spec{Session: "t", Sequence: 2, Begin: true, Items: items(item("d", "4"))}, false, "c-deployment.m1=4 d-deployment.m1=4"},
		{"and never ends", 130 * time.Second, "m1", nil, false, ""},
	} {
		now := start.Add(step.at)
		if step.spec == nil {
			m.expire(now)
		} else {
			resend, err := m.take(step.cluster, step.spec, now)
			if err != nil || resend != step.resend {
				t.Errorf("%d, %s: got %v, %v", i, step.what, resend, err)
			}
		}
		if got := held(t, m); got != step.held {
			t.Errorf("%d, %s: held are %q, want %q", i, step.what, got, step.held)
		}
	}
}

// TestUnchanged checks that what is reported again is no event, and that a label of an autoscaler is one.
func TestUnchanged(t *testing.T) {
	m := newMetrics(t)
	report := func(sequence int64, items ...metricsv1alpha1.WorkloadMetrics) uint64 {
		t.Helper()
		if _, err := m.take("m1", &metricsv1alpha1.MetricsReportSpec{Session: "s", Sequence: sequence, Begin: true, End: true, Items: items}, start); err != nil {
			t.Fatal(err)
		}
		return m.Store.Version()
	}
	first := report(1, item("a", "1"), item("b", "1"))
	if again := report(2, item("a", "1"), item("b", "1")); again != first {
		t.Errorf("the version is %d after %d though nothing has changed", again, first)
	}
	scaled := item("a", "1")
	scaled.Labels = map[string]string{names.AutoscalerLabel: "true", "app": "web"}
	if later := report(3, scaled, item("b", "1")); later == first {
		t.Error("a label of an autoscaler changes nothing")
	}
	object, err := m.Store.Get("m1", "demo", "a-deployment.m1")
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(object.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if labels := decoded.(*metricsv1alpha1.WorkloadMetrics).Labels; fmt.Sprint(labels) != "map[cellplane.io/autoscaler:true]" {
		t.Errorf("the labels are %v", labels)
	}
}

// TestWrongReports checks that nothing of a wrong report is taken.
func TestWrongReports(t *testing.T) {
	m := newMetrics(t)
	mux := http.NewServeMux()
	mux.Handle("POST /reports/{cluster}", m)
	answer := func(cluster string, body []byte) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		mux.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/reports/"+cluster, bytes.NewReader(body)))
		return recorder
	}
	send := func(cluster string, body []byte) (int, string) {
		recorder := answer(cluster, body)
		return recorder.Code, recorder.Body.String()
	}
	report := func(change func(*metricsv1alpha1.MetricsReport)) []byte {
		r := &metricsv1alpha1.MetricsReport{Spec: metricsv1alpha1.MetricsReportSpec{
			Session: "s", Sequence: 1, Begin: true, End: true, Items: []metricsv1alpha1.WorkloadMetrics{item("a", "1"), item("b", "1")},
		}}
		change(r)
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	second := func(change func(*metricsv1alpha1.WorkloadMetrics)) []byte {
		return report(func(r *metricsv1alpha1.MetricsReport) { change(&r.Spec.Items[1]) })
	}
	for _, test := range []struct {
		what, says string
		cluster    string
		body       []byte
	}{
		{"no JSON", "no MetricsReport", "m1", []byte("{")},
		{"the name of another cluster", "of cluster m2, not of m1", "m1", report(func(r *metricsv1alpha1.MetricsReport) { r.Name = "m2" })},
		{"an item of another cluster", "of cluster m2, not of m1", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Cluster = "m2" })},
		{"an item with the name of another cluster's", "its name is", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Name = "b-deployment.m2" })},
		{"no session", "needs a session", "m1", report(func(r *metricsv1alpha1.MetricsReport) { r.Spec.Session = "" })},
		{"no sequence", "needs a session", "m1", report(func(r *metricsv1alpha1.MetricsReport) { r.Spec.Sequence = 0 })},
		{"no namespace", "needs a namespace", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Namespace = "" })},
		{"a path as a name", "cannot be part of a name", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Workload.Name = "../b" })},
		{"no UID", "needs the UID", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.UID = "" })},
		{"more pods ready than there are", "impossible", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Pods.Ready = 9 })},
		{"a negative usage", "negative", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Metrics[0].Measured.Usage = resource.MustParse("-1") })},
		{"a negative request", "negative", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) {
			i.Metrics[0].Measured.Requests = ptr.To(resource.MustParse("-1m"))
		})},
		{"a negative request of missing pods", "negative", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) {
			i.Metrics[0].Missing = []metricsv1alpha1.MissingPods{{Pods: 1, Request: ptr.To(resource.MustParse("-1m"))}}
		})},
		{"a metric of more pods than there are", "more pods", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) {
			i.Metrics[0].Unready.Pods, i.Metrics[0].Missing = 1, []metricsv1alpha1.MissingPods{{Pods: 1}}
		})},
		{"more pods than a number has", "more pods", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) {
			i.Metrics[0].Missing = []metricsv1alpha1.MissingPods{{Pods: math.MaxInt32}, {Pods: math.MaxInt32}}
		})},
		{"a negative number", "negative", "m1", second(func(i *metricsv1alpha1.WorkloadMetrics) { i.Metrics[0].Measured.Pods = -1 })},
		{"too much", "too large", "m1", bytes.Repeat([]byte(" "), maxReport+1)},
	} {
		if code, said := send(test.cluster, test.body); code != http.StatusBadRequest || !strings.Contains(said, test.says) {
			t.Errorf("%s: answered %d %s", test.what, code, said)
		}
		if got := held(t, m); got != "" {
			t.Fatalf("%s: held are %s", test.what, got)
		}
	}
	elsewhere := answer("elsewhere", report(func(*metricsv1alpha1.MetricsReport) {}))
	if elsewhere.Header().Get(views.ElsewhereHeader) == "" || strings.Contains(elsewhere.Body.String(), `"wanted"`) || held(t, m) != "" {
		t.Errorf("a cluster of another share: answered %d %s, held are %q", elsewhere.Code, elsewhere.Body, held(t, m))
	}
	code, said := send("m1", report(func(r *metricsv1alpha1.MetricsReport) {
		sums := &r.Spec.Items[0].Metrics[0]
		sums.Resource, sums.Name, sums.Measured.Usage = "", "temperature", resource.MustParse("-5")
	}))
	var taken metricsv1alpha1.MetricsReport
	if err := json.Unmarshal([]byte(said), &taken); err != nil || code != http.StatusCreated || taken.Status.Wanted == nil || taken.Name != "m1" {
		t.Fatalf("a good report: answered %d %s", code, said)
	}
	version := taken.Status.Wanted.Version
	known := report(func(r *metricsv1alpha1.MetricsReport) { r.Spec.Sequence, r.Spec.Wanted = 2, version })
	if code, said := send("m1", known); code != http.StatusCreated || strings.Contains(said, "wanted") {
		t.Errorf("an agent that knows what is wanted: answered %d %s", code, said)
	}
}

// TestWantedOfACluster checks that an agent learns what is wanted of the workloads that it reports about, and nothing of others.
func TestWantedOfACluster(t *testing.T) {
	m := newMetrics(t)
	all := wanted
	m.Wanted = func() *metricsv1alpha1.WantedMetrics { return all }
	sequence := int64(0)
	wants := func(what string, spec metricsv1alpha1.MetricsReportSpec) (names []string, version string) {
		t.Helper()
		sequence++
		spec.Session, spec.Sequence = "s", sequence
		if _, err := m.take("m1", &spec, start); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := m.wantedIn("m1")
		if got == nil {
			return []string{"unknown"}, ""
		}
		for _, w := range got.Workloads {
			names = append(names, w.Name)
		}
		return names, got.Version
	}
	reports := func(what, want string, spec metricsv1alpha1.MetricsReportSpec) string {
		t.Helper()
		got, version := wants(what, spec)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: wanted are %v, not %s", what, got, want)
		}
		return version
	}
	items := func(names ...string) (all []metricsv1alpha1.WorkloadMetrics) {
		for _, name := range names {
			all = append(all, item(name, "1"))
		}
		return all
	}
	removed := []metricsv1alpha1.NamespacedWorkload{wish("z", "").NamespacedWorkload}
	reports("a part of everything", "unknown", metricsv1alpha1.MetricsReportSpec{Begin: true, Items: items("a")})
	first := reports("everything", "a", metricsv1alpha1.MetricsReportSpec{End: true, Items: items("b")})
	all = &metricsv1alpha1.WantedMetrics{Workloads: append(slices.Clone(all.Workloads), wish("y", "more"))}
	if version := reports("more is wanted of others", "a", metricsv1alpha1.MetricsReportSpec{}); version != first {
		t.Error("that is news")
	}
	if version := reports("a new workload", "a z", metricsv1alpha1.MetricsReportSpec{Items: items("z")}); version == first {
		t.Error("what is wanted of a new workload is no news")
	}
	reports("another new one instead", "a y", metricsv1alpha1.MetricsReportSpec{Items: items("y"), Removed: removed})
	reports("everything is something else", "z", metricsv1alpha1.MetricsReportSpec{Begin: true, End: true, Items: items("z")})
}

// TestReportsAreBounded checks that an agent cannot make the process hold more than a cluster may have.
func TestReportsAreBounded(t *testing.T) {
	m := newMetrics(t)
	m.Most = 3
	spec := func(sequence int64, items ...metricsv1alpha1.WorkloadMetrics) *metricsv1alpha1.MetricsReportSpec {
		return &metricsv1alpha1.MetricsReportSpec{Session: "s", Sequence: sequence, Begin: sequence == 1, Items: items}
	}
	const all = "a-deployment.m1=1 b-deployment.m1=1 c-deployment.m1=1"
	if _, err := m.take("m1", spec(1, item("a", "1"), item("b", "1"), item("c", "1")), start); err != nil || held(t, m) != all {
		t.Fatalf("as many workloads as a cluster may have: %v, held are %s", err, held(t, m))
	}
	if _, err := m.take("m1", spec(2, item("d", "1")), start); !errors.Is(err, errTooMuch) || held(t, m) != all {
		t.Errorf("one more: %v, held are %s", err, held(t, m))
	}
	if _, err := m.take("m2", spec(1, item("d", "1")), start); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	large := item("e", "1")
	large.Metrics = slices.Repeat(large.Metrics, maxItem/50)
	if _, err := m.take("m3", spec(1, large), start); !errors.Is(err, errTooMuch) || strings.Contains(held(t, m), "e-deployment") {
		t.Errorf("an item of unlimited size: %v, held are %s", err, held(t, m))
	}
	body, err := json.Marshal(&metricsv1alpha1.MetricsReport{Spec: *spec(1, large)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reports/{cluster}", m)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/reports/m3", bytes.NewReader(body)))
	if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "may report") {
		t.Errorf("a report of unlimited size: answered %d %s", answer.Code, answer.Body)
	}
}
