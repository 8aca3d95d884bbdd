package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// runSize runs the command without the root, whose logging can be set up only once.
func runSize(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newSize()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.Execute()
	return out.String(), err
}

// TestSizingPage runs the commands of docs/sizing.md and compares their output with the page.
func TestSizingPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "```console\n$ cellplane size ")[1:]
	if len(examples) != 2 {
		t.Fatalf("there are %d examples, want 2", len(examples))
	}
	for _, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		command, want, _ := strings.Cut(strings.ReplaceAll(example, "\\\n", ""), "\n")
		got, err := runSize(strings.Fields(command)...)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if got != want {
			t.Errorf("cellplane size %s prints\n%s\nbut the page says\n%s", command, got, want)
		}
	}
}

func TestSizeInput(t *testing.T) {
	all := "--nodes 500 --services 200 --pods 4000 --clusters 2 --changes-per-day 50"
	for args, want := range map[string]string{
		"":                                "--nodes is missing",
		"--nodes 5 --services 1":          "--pods is missing",
		all + " -o xml":                   `--output must be table, json or yaml, not "xml"`,
		all + " --nodes many":             `invalid argument "many"`,
		all + " extra":                    `unknown command "extra"`,
		all + " --clusters-per-service 3": "--clusters-per-service is 3, but there are only 2 clusters",
	} {
		if _, err := runSize(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %s", args, err, want)
		}
	}
	for _, format := range []string{"table", "json", "yaml"} {
		if out, err := runSize(append(strings.Fields(all), "-o", format)...); err != nil || !strings.Contains(out, "cluster-gateway") {
			t.Errorf("-o %s: %v\n%s", format, err, out)
		}
	}
}
