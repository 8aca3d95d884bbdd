package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cellplane/cellplane/internal/local"
)

// TestUpSizes checks which sizes win: flags, the configuration file, the federation in the directory, the defaults.
func TestUpSizes(t *testing.T) {
	const header = "apiVersion: local.cellplane.io/v1alpha1\nkind: LocalFederation\n"
	const kept = `{"spec":{"cells":1,"members":2,"nodes":3}}`
	for name, test := range map[string]struct {
		state, config string
		flags         map[string]int
		want          local.Spec
		wantError     string
	}{
		"defaults":            {want: local.DefaultSpec},
		"flags":               {flags: map[string]int{"cells": 5}, want: local.Spec{Cells: 5, Members: 3, Nodes: 10}},
		"file":                {config: "cells: 4\nmembers: 0", want: local.Spec{Cells: 4, Nodes: 10}},
		"flags win over file": {config: "cells: 4\nnodes: 1", flags: map[string]int{"cells": 5}, want: local.Spec{Cells: 5, Members: 3, Nodes: 1}},
		"resumed":             {state: kept, want: local.Spec{Cells: 1, Members: 2, Nodes: 3}},
		"resumed with a file": {state: kept, config: "cells: 1", want: local.Spec{Cells: 1, Members: 2, Nodes: 3}},
		"resumed with flags":  {state: kept, config: "cells: 7", flags: map[string]int{"cells": 1}, want: local.Spec{Cells: 1, Members: 2, Nodes: 3}},
		"another size":        {state: kept, config: "cells: 2", wantError: "leave the sizes out to resume it"},
		"too many":            {config: "cells: 27", wantError: "between 0 and 26"},
		"unknown field":       {config: "shells: 1", wantError: `config.yaml: unknown field "shells"`},
		"unknown flag":        {config: "parts: {gateway: {flags: {shells: 1}}}", wantError: "gateway has no flag \"shells\"; see `cellplane gateway --help`"},
		"unknown part":        {config: "parts: {getaway: {}}", wantError: `unknown part "getaway"`},
		"flags of parts":      {config: "parts: {gateway: {flags: {v: 2}}, etcd: {flags: {log-level: info}}}", want: local.DefaultSpec},
	} {
		t.Run(name, func(t *testing.T) {
			o := upOptions{dir: t.TempDir(), spec: local.Spec{Cells: test.flags["cells"]}}
			if test.state != "" {
				write(t, filepath.Join(o.dir, "federation.json"), test.state)
			}
			if test.config != "" {
				o.config = filepath.Join(t.TempDir(), "config.yaml")
				write(t, o.config, header+test.config)
			}
			err := o.complete(func(flag string) bool { _, ok := test.flags[flag]; return ok })
			switch {
			case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("got error %v, want %q", err, test.wantError)
			case test.wantError == "" && (err != nil || o.spec != test.want):
				t.Errorf("got %+v, %v, want %+v", o.spec, err, test.want)
			}
		})
	}
}

// TestExampleFlags checks that the parts have the flags that the example sets.
func TestExampleFlags(t *testing.T) {
	o := upOptions{dir: t.TempDir(), config: "../../docs/examples/local.yaml"}
	if err := o.complete(func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if o.settings == nil || !slices.Equal(o.settings.Parts["cell-a/engine"].Flags["v"], local.Values{"4"}) {
		t.Errorf("the settings are %+v", o.settings)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
