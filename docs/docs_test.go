// Package docs_test checks that the documentation names files and tests that exist.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/testtable"
)

var (
	// path matches a path of the repository in backquotes.
	path = regexp.MustCompile("`((?:internal|api|test|cmd|docs|kube|images)/[\\w./-]+)`")
	// link matches a relative link.
	link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// TestPathsExist finds references to packages, files and pages that have been renamed or removed.
func TestPathsExist(t *testing.T) {
	var pages []string
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2 {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil || len(pages) < 10 {
		t.Fatalf("found %d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range path.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("..", string(found[1]))); err != nil {
				t.Errorf("%s names %s, which does not exist", page, found[1])
			}
		}
		for _, found := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(found[1]))); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, found[1])
			}
		}
	}
}

// TestThreats checks that the tests in the tables of security.md exist.
func TestThreats(t *testing.T) {
	if rows := testtable.Check(t, "security.md", "../api", "../internal", "../test"); len(rows) == 0 {
		t.Error("there are no rows")
	}
}

// TestKarmada checks the comparison with Karmada: its tests exist, every row says how it compares, and what is not there is what api.md says.
func TestKarmada(t *testing.T) {
	if rows := testtable.Check(t, "karmada.md", "../api", "../internal", "../test"); len(rows) < 20 {
		t.Errorf("there are %d rows", len(rows))
	}
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "--") || strings.TrimSpace(cells[1]) == "row" {
			continue
		}
		if !verdict.MatchString(cells[2]) {
			t.Errorf("the row%sdoes not say how it compares", cells[1])
		}
	}
	api, err := os.ReadFile("api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, missing, _ := strings.Cut(string(page), "## Not there")
	missing, _, _ = strings.Cut(missing, "Also missing")
	stored := 0
	for line := range strings.Lines(string(api)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for kind := range strings.SplitSeq(strings.TrimSpace(cells[2]), ", ") {
			if !kindName.MatchString(kind) {
				continue
			}
			inert := strings.Contains(cells[3], "stored, not acted on")
			if inert {
				stored++
			}
			if regexp.MustCompile(`\b`+regexp.QuoteMeta(kind)+`\b`).MatchString(missing) != inert {
				t.Errorf("%s: api.md says that it is acted on: %t; karmada.md says something else", kind, !inert)
			}
		}
	}
	if stored == 0 {
		t.Log("all kinds are acted on")
	}
}

// karmadaMetrics are the metrics of Karmada's components, by which dashboards and alerts know them.
var karmadaMetrics = []string{
	"binding_sync_work_duration_seconds", "cluster_cpu_allocatable_number", "cluster_cpu_allocated_number", "cluster_memory_allocatable_bytes",
	"cluster_memory_allocated_bytes", "cluster_node_number", "cluster_pod_allocatable_number", "cluster_pod_allocated_number", "cluster_ready_node_number",
	"cluster_ready_state", "cluster_sync_status_duration_seconds", "create_resource_to_cluster", "cronfederatedhpa_process_duration_seconds",
	"cronfederatedhpa_rule_process_duration_seconds", "delete_resource_from_cluster", "eviction_kind_total", "eviction_processing_latency_seconds",
	"eviction_processing_total", "eviction_queue_depth", "federatedhpa_process_duration_seconds", "federatedhpa_pull_metrics_duration_seconds",
	"karmada_build_info", "karmada_scheduler_e2e_scheduling_duration_seconds", "karmada_scheduler_framework_extension_point_duration_seconds",
	"karmada_scheduler_plugin_execution_duration_seconds", "karmada_scheduler_queue_incoming_bindings_total", "karmada_scheduler_schedule_attempts_total",
	"karmada_scheduler_scheduling_algorithm_duration_seconds", "policy_apply_attempts_total", "policy_preemption_total",
	"resource_apply_policy_duration_seconds", "resource_match_policy_duration_seconds", "update_resource_to_cluster", "work_sync_workload_duration_seconds",
}

// TestMetricsOfKarmada checks that exactly those of Karmada's metrics are missing that karmada.md says are.
func TestMetricsOfKarmada(t *testing.T) {
	page, err := os.ReadFile("karmada.md")
	if err != nil {
		t.Fatal(err)
	}
	_, missing, _ := strings.Cut(string(page), "of the metrics of Karmada's own components:")
	missing, _, found := strings.Cut(missing, "Others have Karmada's names.")
	if !found {
		t.Fatal("karmada.md does not say which metrics are missing")
	}
	named := regexp.MustCompile("`([a-z_]+)(…?)`").FindAllStringSubmatch(missing, -1)
	var code strings.Builder
	if err := filepath.WalkDir("../internal", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := os.ReadFile(name)
		code.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, metric := range karmadaMetrics {
		saidMissing := slices.ContainsFunc(named, func(n []string) bool { return n[1] == metric || n[2] != "" && strings.HasPrefix(metric, n[1]) })
		if exists := strings.Contains(code.String(), `"`+metric+`"`); exists == saidMissing {
			t.Errorf("%s exists: %t; karmada.md says something else", metric, exists)
		}
	}
}

// kindName matches the name of a kind.
var kindName = regexp.MustCompile(`^[A-Z]\w+$`)

// verdict is how a feature compares with Karmada's.
var verdict = regexp.MustCompile(`^ \*\*(Same|Better|Different)\.\*\* `)
