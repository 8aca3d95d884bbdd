package size

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// TestCosts checks that every figure has a reason, and that docs/performance.md says what it quotes.
func TestCosts(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	costs := reflect.ValueOf(*MeasuredCosts())
	for i := range costs.NumField() {
		name, figure := costs.Type().Field(i).Name, costs.Field(i).Interface().(Figure)
		if figure.Value <= 0 || figure.What == "" {
			t.Errorf("%s has the value %g and the text %q", name, figure.Value, figure.What)
		}
		measured := figure.Command != "" && figure.Quote != ""
		if measured == (figure.Assumption != "") {
			t.Errorf("%s must either have a command and a quote, or be an assumption", name)
		}
		if !measured {
			continue
		}
		if !strings.Contains(string(page), figure.Quote) {
			t.Errorf("%s: docs/performance.md does not say %q", name, figure.Quote)
		}
		target, ok := strings.CutPrefix(figure.Command, "make ")
		if ok && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).Match(makefile) {
			t.Errorf("%s: there is no %s", name, figure.Command)
		}
		if !strings.Contains(string(page), figure.Command) {
			t.Errorf("%s: docs/performance.md does not name %s", name, figure.Command)
		}
	}
}

func TestInvalidInput(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"--nodes must be between 1 and 1000000000, not 0":                    func(in *Input) { in.Nodes = 0 },
		"--services must be between":                                         func(in *Input) { in.Services = -1 },
		"--pods must be between":                                             func(in *Input) { in.Pods = 2_000_000_000 },
		"--clusters must be between":                                         func(in *Input) { in.Clusters = 0 },
		"--changes-per-day must be between":                                  func(in *Input) { in.ChangesPerDay = -1 },
		"--clusters-per-service is 7, but there are only 5 clusters":         func(in *Input) { in.ClustersPerService = 7 },
		"--nodes is 4, but each of the 5 clusters needs a node":              func(in *Input) { in.Nodes = 4 },
		"would need 201 cells of the largest measured size; at most 64 are ": func(in *Input) { in.Services = 1_000_000 },
	} {
		in := Input{Nodes: 500, Services: 200, Pods: 4000, Clusters: 5, ChangesPerDay: 50, TemplatesPerService: 2, ClustersPerService: 3}
		change(&in)
		if _, err := New(in, MeasuredCosts()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPlansHold checks plans of random federations: no cell is larger than what was measured, even after the loss of one,
// and every part has what it needs.
func TestPlansHold(t *testing.T) {
	costs := MeasuredCosts()
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Clusters:            rapid.IntRange(1, 5000).Draw(t, "clusters"),
			Services:            rapid.IntRange(1, 400_000).Draw(t, "services"),
			Pods:                rapid.IntRange(1, 50_000_000).Draw(t, "pods"),
			ChangesPerDay:       rapid.IntRange(0, 10_000_000).Draw(t, "changes"),
			TemplatesPerService: rapid.IntRange(1, 5).Draw(t, "templates"),
			RequestsPerSecond:   rapid.IntRange(0, 100_000).Draw(t, "requests"),
		}
		in.Nodes = rapid.IntRange(in.Clusters, 1_000_000).Draw(t, "nodes")
		in.ClustersPerService = rapid.IntRange(1, in.Clusters).Draw(t, "clusters per service")
		plan, err := New(in, costs)
		if err != nil {
			if !strings.Contains(err.Error(), "at most 64 are possible") {
				t.Fatal(err)
			}
			return
		}
		if plan.Cells < 2 || plan.Cells > 64 {
			t.Fatalf("%d cells", plan.Cells)
		}
		left := float64(in.Services*in.TemplatesPerService) / float64(plan.Cells-1)
		if left > costs.CellWorkloads.Value || left*float64(in.ClustersPerService) > costs.CellWorks.Value {
			t.Fatalf("after the loss of a cell the others have %g workloads in %d clusters each", left, in.ClustersPerService)
		}
		memory := 0.0
		for _, part := range plan.Parts {
			if part.Replicas < 2 || part.Cores < 0.5 || part.MemoryMiB < 256 || len(part.Reasons) < 3 || (part.Name == "etcd") != (part.StorageGiB > 0) {
				t.Fatalf("%+v", part)
			}
			memory += float64(part.Times*part.Replicas*part.MemoryMiB) / 1024
		}
		if math.Abs(memory-plan.Total.MemoryGiB) > 0.01 {
			t.Fatalf("the parts have %g GiB in all, the total says %g", memory, plan.Total.MemoryGiB)
		}
	})
}

// TestFormats checks that JSON and YAML say the same.
func TestFormats(t *testing.T) {
	in := Input{Nodes: 500, Services: 200, Pods: 4000, Clusters: 5, ChangesPerDay: 50, TemplatesPerService: 2, ClustersPerService: 3}
	plan, err := New(in, MeasuredCosts())
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON, fromYAML Plan
	for format, into := range map[string]*Plan{"json": &fromJSON, "yaml": &fromYAML} {
		var out bytes.Buffer
		if err := plan.Print(&out, format, false); err != nil {
			t.Fatal(err)
		}
		read := yaml.UnmarshalStrict
		if format == "json" {
			read = func(data []byte, into any, _ ...yaml.JSONOpt) error { return json.Unmarshal(data, into) }
		}
		if err := read(out.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
	}
	if !reflect.DeepEqual(&fromJSON, plan) || !reflect.DeepEqual(&fromYAML, plan) {
		t.Errorf("JSON says %+v, YAML says %+v, want %+v", fromJSON, fromYAML, plan)
	}
}

func TestNotesOfWhatWasNotMeasured(t *testing.T) {
	in := Input{Nodes: 600_000, Services: 200, Pods: 20_000_000, Clusters: 3000, TemplatesPerService: 1, ClustersPerService: 1}
	plan, err := New(in, MeasuredCosts())
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(plan.Notes, "\n")
	for _, want := range []string{"20 000 000 pods are more than the 10 000 000", "600 000 nodes are more than", "3 000 clusters are more than"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}
