package local

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cellplane/cellplane/internal/process"
)

func TestParseConfig(t *testing.T) {
	const header = "apiVersion: local.cellplane.io/v1alpha1\nkind: LocalFederation\n"
	for name, test := range map[string]struct{ file, want string }{
		"empty":           {"", "apiVersion and kind must be"},
		"another kind":    {"apiVersion: v1\nkind: Pod\nspec: {}\n", `not "v1" and "Pod"`},
		"nothing else":    {header, ""},
		"sizes":           {header + "cells: 1\nmembers: 0\nnodes: 3\n", ""},
		"unknown field":   {header + "shells: 1\n", `unknown field "shells"`},
		"unknown setting": {header + "parts: {gateway: {flgs: {}}}\n", `unknown field "parts.gateway.flgs"`},
		"wrong case":      {header + "Cells: 1\n", `unknown field "Cells"`},
		"wrong type":      {header + "cells: many\n", "cannot unmarshal string"},
		"twice":           {header + "cells: 1\ncells: 2\n", "already"},
		"not a scalar":    {header + "parts: {gateway: {flags: {v: {a: b}}}}\n", "neither a string, a number nor a boolean"},
		"no YAML":         {"\t", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig([]byte(test.file))
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want %q", err, test.want)
			case err != nil && strings.Contains(err.Error(), "\n"):
				t.Errorf("the error has several lines: %v", err)
			}
		})
	}
}

func TestExampleConfig(t *testing.T) {
	config, err := ReadConfig("../../docs/examples/local.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec := config.Resize(DefaultSpec)
	if err := spec.Validate(); err != nil {
		t.Error(err)
	}
	if err := config.Validate(t.TempDir(), spec); err != nil {
		t.Error(err)
	}
}

func TestResize(t *testing.T) {
	config, err := parseConfig([]byte("apiVersion: local.cellplane.io/v1alpha1\nkind: LocalFederation\nmembers: 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.Resize(Spec{Cells: 4, Members: 5, Nodes: 6}), (Spec{Cells: 4, Nodes: 6}); got != want {
		t.Errorf("resized to %+v, want %+v", got, want)
	}
}

func TestValidateSettings(t *testing.T) {
	flags := func(part, flag string) Settings {
		return Settings{Parts: map[string]Part{part: {Flags: map[string]Values{flag: {"1"}}}}}
	}
	for name, test := range map[string]struct {
		settings Settings
		want     string
	}{
		"nothing":               {Settings{}, ""},
		"program":               {flags("engine", "v"), ""},
		"process":               {flags("cell-a/engine", "v"), ""},
		"federation":            {flags("federation/kube-controller-manager", "v"), ""},
		"unknown program":       {flags("ngine", "v"), `unknown part "ngine"`},
		"unknown control plane": {flags("cell-z/engine", "v"), "unknown control plane"},
		"dashes":                {flags("engine", "--v"), "without dashes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.settings.validate(Spec{Cells: 1}.ControlPlaneNames())
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestCustomize(t *testing.T) {
	config, err := parseConfig([]byte(`
apiVersion: local.cellplane.io/v1alpha1
kind: LocalFederation
env: {GOMAXPROCS: 2}
parts:
  engine: {flags: {v: 4, leader-elect: true, plugins: [a, b]}, env: {GOGC: 50}}
  cell-a/engine: {flags: {v: 6}, env: {GOGC: 80}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]process.Spec{
		"hub/engine": {
			Args: []string{"engine", "--cell=x", "--leader-elect=true", "--plugins=a", "--plugins=b", "--v=4"},
			Env:  []string{"A=b", "GOMAXPROCS=2", "GOGC=50"},
		},
		"cell-a/engine": {
			Args: []string{"engine", "--cell=x", "--leader-elect=true", "--plugins=a", "--plugins=b", "--v=6"},
			Env:  []string{"A=b", "GOMAXPROCS=2", "GOGC=50", "GOGC=80"}, // the last one counts
		},
		"gateway": {Args: []string{"engine", "--cell=x", "--v=1", "--leader-elect"}, Env: []string{"A=b", "GOMAXPROCS=2"}},
	} {
		args := []string{"engine", "--cell=x", "--v=1", "--leader-elect"}
		got := config.customize(process.Spec{Name: name, Args: args, Env: []string{"A=b"}})
		want.Name = name
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}
