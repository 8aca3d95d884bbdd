package metriclist

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/metriclist/stock"
)

const (
	monitoring = "../../deploy/charts/cellplane/monitoring"
	runbooks   = "../../docs/runbooks"
	// runbookURL begins the address of a page.
	runbookURL = "https://github.com/cellplane/cellplane/blob/main/docs/runbooks/"
)

// exposed are the labels of a metric, and the parts and programs that have it; all if there are none.
type exposed struct{ labels, by []string }

// known are all metrics that alerts and dashboards may use: ours and those of stock programs.
func known(t *testing.T) map[string]exposed {
	t.Helper()
	series := map[string]exposed{}
	add := func(name string, histogram bool, labels, by []string) {
		if !histogram {
			series[name] = exposed{labels, by}
			return
		}
		series[name+"_bucket"] = exposed{append([]string{"le"}, labels...), by}
		series[name+"_sum"], series[name+"_count"] = exposed{labels, by}, exposed{labels, by}
	}
	for _, metric := range list(t) {
		add(metric.Name, metric.Type == Histogram, metric.Labels, metric.Parts)
	}
	for _, program := range []struct {
		metrics []stock.Metric
		by      []string
	}{
		{stock.Prometheus, nil}, {stock.Process, nil}, {stock.Etcd, []string{"etcd"}}, {stock.APIServer, []string{"kube-apiserver"}},
		{stock.FlowControl, []string{"kube-apiserver", "gateway"}},
	} {
		for _, metric := range program.metrics {
			add(metric.Name, metric.Histogram, metric.Labels, program.by)
		}
	}
	return series
}

// check returns what is wrong with a query.
func check(series map[string]exposed, text string) error {
	q, err := parseQuery(text)
	if err != nil {
		return err
	}
	if len(q.metrics) == 0 {
		return fmt.Errorf("no metric in %s", text)
	}
	groupable := slices.Clone(stock.TargetLabels)
	for _, metric := range q.metrics {
		found, ok := series[metric.name]
		if !ok {
			return fmt.Errorf("%s does not exist in %s", metric.name, text)
		}
		labels := found.labels
		if metric.job != "" && found.by != nil && !slices.Contains(found.by, metric.job) {
			return fmt.Errorf("%s has no %s in %s", metric.job, metric.name, text)
		}
		for _, label := range metric.labels {
			if !slices.Contains(labels, label) && !slices.Contains(stock.TargetLabels, label) {
				return fmt.Errorf("%s has no label %s in %s", metric.name, label, text)
			}
		}
		if !slices.Contains(metric.labels, "namespace") {
			return fmt.Errorf("%s is not limited to a namespace in %s", metric.name, text)
		}
		groupable = append(groupable, labels...)
	}
	for _, label := range q.groupings {
		if !slices.Contains(groupable, label) {
			return fmt.Errorf("no metric has the label %s in %s", label, text)
		}
	}
	return nil
}

// TestCheck expects that mistakes in queries are found.
func TestCheck(t *testing.T) {
	series := known(t)
	for _, good := range []string{
		`up{namespace="n"} == 0`,
		`sum by (pod) (rate(apiserver_request_total{namespace="n", job="kube-apiserver", code=~"5.."}[5m])) / on (pod) sum(up{namespace="n"}) by (pod) > 0.5 or absent(up{namespace="n"} == 1)`,
		`histogram_quantile(0.99, sum by (le) (rate(work_sync_workload_duration_seconds_bucket{namespace="n"}[5m]))) > 2 * 60 - 1`,
		`(cellplane_cell_condition{namespace="n"} > 0) < time()`,
	} {
		if err := check(series, good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		``, `1`, `up`, `up{namespace="n"`, `up{namespace="n"} ==`, `up{namespace="n"} 1`, `up{namespace="n"}[5m]`, `sum(up{namespace="n"}[5m])`, `rate(up{namespace="n"})`,
		`rate(sum(up{namespace="n"})[5m])`, `up{namespace=n}`, `up{namespace~"n"}`, `up{namespace=~"("}`, `ups{namespace="n"}`, `unknown(up{namespace="n"})`, `up{namespace="n", code="5"}`,
		`sum by (code) (up{namespace="n"})`, `histogram_quantile(0.9, work_sync_workload_duration_seconds{namespace="n"})`, `up{namespace="n"} or 1`, `absent(up{namespace="n"}, 1)`, `up{namespace="n"};`,
		`apiserver_request_total_bucket{namespace="n"}`, `1 < 2 + up{namespace="n"}[1m]`, `apiserver_request_total{namespace="n", job="gateway"}`,
	} {
		if check(series, bad) == nil {
			t.Errorf("no mistake was found in %s", bad)
		}
	}
}

// rules are the alerts of the chart.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// templateLabel matches a label in an annotation.
var templateLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// command matches a subcommand of cellplane in a code block.
var command = regexp.MustCompile(`(?m)^\$ cellplane ([a-z-]+)`)

// TestAlerts checks the alerts: queries of metrics that exist, severities, annotations, and a page for each.
func TestAlerts(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(monitoring, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all rules
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	series, pages := known(t), map[string]bool{}
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			if err := check(series, rule.Expr); err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
			}
			if wait, err := time.ParseDuration(rule.For); rule.For != "" && (err != nil || wait <= 0) {
				t.Errorf("%s: for: %s", rule.Alert, rule.For)
			}
			if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" || len(rule.Labels) != 1 {
				t.Errorf("%s has the labels %v", rule.Alert, rule.Labels)
			}
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Annotations["runbook_url"] != runbookURL+rule.Alert+".md" || len(rule.Annotations) != 3 {
				t.Errorf("%s has the annotations %v", rule.Alert, rule.Annotations)
			}
			for _, label := range templateLabel.FindAllStringSubmatch(rule.Annotations["summary"]+rule.Annotations["description"], -1) {
				if !remains(series, rule.Expr, label[1]) {
					t.Errorf("%s: its result has no label %s", rule.Alert, label[1])
				}
			}
			pages[rule.Alert+".md"] = true
		}
	}
	if len(pages) < 20 {
		t.Errorf("there are only %d alerts", len(pages))
	}
	found, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range found {
		if !pages[entry.Name()] {
			t.Errorf("the page %s is of no alert", entry.Name())
		}
		delete(pages, entry.Name())
		checkRunbook(t, entry.Name())
	}
	for name := range pages {
		t.Errorf("there is no page %s", name)
	}
}

// remains reports whether the result of a query can have a label. With an aggregation outside, only that counts.
func remains(series map[string]exposed, text, label string) bool {
	q, err := parseQuery(text)
	if err != nil {
		return false
	}
	if len(q.groupings) > 0 {
		return slices.Contains(q.groupings, label)
	}
	for _, metric := range q.metrics {
		if slices.Contains(series[metric.name].labels, label) {
			return true
		}
	}
	return slices.Contains(stock.TargetLabels, label)
}

// checkRunbook expects the sections of a page, and that the subcommands that it names exist.
func checkRunbook(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runbooks, name))
	if err != nil {
		t.Fatal(err)
	}
	if title := "# " + strings.TrimSuffix(name, ".md") + "\n"; !strings.HasPrefix(string(text), title) {
		t.Errorf("%s does not begin with %q", name, title)
	}
	for _, section := range []string{"\n## Look\n", "\n## Do\n"} {
		if !strings.Contains(string(text), section) {
			t.Errorf("%s has no section %s", name, strings.TrimSpace(section))
		}
	}
	for _, found := range command.FindAllSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("../../docs/cli", string(found[1])+".md")); err != nil {
			t.Errorf("%s: there is no command cellplane %s", name, found[1])
		}
	}
}

// dashboard is what is checked of a dashboard of Grafana.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		Type    string `json:"type"`
		GridPos struct {
			H, W, X, Y int
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
			RefID        string `json:"refId"`
		} `json:"targets"`
	} `json:"panels"`
}

// legendLabel matches a label in the legend of a panel.
var legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// TestDashboards checks that panels use metrics that exist, and do not overlap.
func TestDashboards(t *testing.T) {
	series, uids := known(t), map[string]bool{}
	err := filepath.WalkDir(filepath.Join(monitoring, "dashboards"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var d dashboard
		if err := json.Unmarshal(data, &d); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if uids[d.UID] || d.UID == "" || d.Title == "" || len(d.Panels) < 4 {
			t.Errorf("%s: uid %q, title %q, %d panels", file, d.UID, d.Title, len(d.Panels))
		}
		uids[d.UID] = true
		checkDashboard(t, series, &d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(uids) < 5 {
		t.Errorf("there are only %d dashboards", len(uids))
	}
}

func checkDashboard(t *testing.T, series map[string]exposed, d *dashboard) {
	t.Helper()
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, panel := range d.Panels {
		if ids[panel.ID] {
			t.Errorf("%s: two panels have the id %d", d.Title, panel.ID)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%s: %s is not in a place of its own: %s", d.Title, panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s: %s shows nothing", d.Title, panel.Title)
		}
		for _, target := range panel.Targets {
			if !strings.Contains(target.Expr, `namespace="$namespace"`) {
				t.Errorf("%s: %s does not use the variable namespace", d.Title, panel.Title)
			}
			expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "n").Replace(target.Expr)
			if err := check(series, expr); err != nil {
				t.Errorf("%s: %s: %v", d.Title, panel.Title, err)
				continue
			}
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !remains(series, expr, label[1]) {
					t.Errorf("%s: %s: its result has no label %s", d.Title, panel.Title, label[1])
				}
			}
		}
	}
	if len(d.Templating.List) != 2 || d.Templating.List[0].Type != "datasource" || d.Templating.List[1].Name != "namespace" {
		t.Errorf("%s has the variables %+v", d.Title, d.Templating.List)
	}
}
