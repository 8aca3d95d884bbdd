package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/testenv"
)

// useEditor sets an editor that runs one step each time it is opened: shell commands with the file as $1. seen returns the
// text that a step got. The editor fails after the last step.
func useEditor(t *testing.T, steps ...string) (seen func(int) string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	script := fmt.Sprintf("#!/bin/sh\nn=$(ls %s | grep -c seen)\ncp \"$1\" %s/seen$n\ncase $n in\n", dir, dir)
	for i, step := range steps {
		script += fmt.Sprintf("%d) %s ;;\n", i, step)
	}
	file := filepath.Join(dir, "editor")
	writeText(t, file, script+"*) exit 1 ;;\nesac\n")
	t.Setenv("KUBE_EDITOR", "sh "+file)
	return func(n int) string { return readText(t, filepath.Join(dir, fmt.Sprintf("seen%d", n))) }
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kept returns the content and the name of the file that is left of an edit.
func kept(t *testing.T) (string, string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
	if err != nil || len(files) > 1 {
		t.Fatalf("left are %v, %v", files, err)
	}
	if len(files) == 0 {
		return "", ""
	}
	return readText(t, files[0]), files[0]
}

const (
	setHealth   = `sed -i 's/goals > 1/goals > 7/' "$1"`
	breakHealth = `sed -i 's/goals > 1/goals > > 7/' "$1"`
	mendHealth  = `sed -i 's/goals > > 7/goals > 7/' "$1"`
	twoScores   = "# ours\n" + scoreCustomization + "---\n# theirs\napiVersion: config.karmada.io/v1alpha1\nkind: ResourceInterpreterCustomization\nmetadata: {name: others}\n" +
		"spec:\n  target: {apiVersion: example.com/v1, kind: Other} # a kind\n  customizations:\n    healthInterpretation:\n      luaScript: |\n        function InterpretHealth(obj) return obj.status.goals > 1 end\n"
)

// I13: a customization in a file is edited, validated and written back. The rest of the file is preserved, and no text is lost.
func TestInterpretEditFile(t *testing.T) {
	for name, test := range map[string]struct {
		text    string // of the file
		args    []string
		steps   []string
		output  string
		refusal string
		want    []string // in the file
		absent  string   // from the file
		kept    string
	}{
		"changed": {text: scoreCustomization, steps: []string{setHealth}, output: "Customization scores is changed in ", want: []string{"goals > 7", "GetReplicas(obj) return obj.spec.players, {}"}, absent: "goals > 1"},
		"several lines": {text: scoreCustomization, steps: []string{`printf 'local kube = require("kube")\n-- pods\nfunction GetDependencies(obj)\n  return {}\nend\n' | sed -i '/^function GetDependencies/{r /dev/stdin
d}' "$1"`}, output: "changed", want: []string{"luaScript: |\n", "        -- pods\n        function GetDependencies(obj)\n          return {}\n"}},
		"nothing changed":     {text: scoreCustomization, steps: []string{"true"}, output: "Edit cancelled, no changes were made."},
		"only explanations":   {text: scoreCustomization, steps: []string{`sed -i '/^--##/d' "$1"`}, output: "no changes"},
		"emptied":             {text: scoreCustomization, steps: []string{`: > "$1"`}, output: "Edit cancelled: the file is empty"},
		"mended":              {text: scoreCustomization, steps: []string{breakHealth, mendHealth}, output: "Not saved yet: spec.customizations.healthInterpretation", want: []string{"goals > 7"}},
		"given up":            {text: scoreCustomization, steps: []string{breakHealth, "true"}, refusal: "nothing was changed", kept: "goals > > 7"},
		"editor fails":        {text: scoreCustomization, steps: []string{setHealth + "; exit 3"}, refusal: "EDITOR", kept: "goals > 7"},
		"fails the next time": {text: scoreCustomization, steps: []string{breakHealth}, refusal: "EDITOR", kept: "goals > > 7"},
		"no such editor":      {text: scoreCustomization, steps: []string{"exit 3"}, refusal: "EDITOR"},
		"a rule taken away":   {text: scoreCustomization, steps: []string{`sed -i '/^function GetDependencies/d' "$1"`}, output: "changed", want: []string{"goals > 1"}, absent: "dependencyInterpretation"},
		"all taken away":      {text: scoreCustomization, steps: []string{`sed -i '/^function/d' "$1"`, "true"}, refusal: "at least one script", kept: "---@rule: Retain"},
		"another name":        {text: scoreCustomization, steps: []string{`sed -i 's/^---@name: .*/---@name: goals/' "$1"`}, output: "Customization goals is changed", want: []string{"name: goals"}},
		"no name":             {text: scoreCustomization, steps: []string{`sed -i 's/^---@name: .*//' "$1"`, "true"}, refusal: `invalid name ""`, kept: "---@kind: Score"},
		"another kind":        {text: scoreCustomization, steps: []string{`sed -i 's/^---@kind: .*/---@kind: Result/' "$1"`}, output: "changed", want: []string{"kind: Result", "apiVersion: example.com/v1"}},
		"one of two":          {text: twoScores, args: []string{"others"}, steps: []string{setHealth}, output: "others is changed", want: []string{"# ours", "goals > 1", "# theirs", "kind: Other} # a kind", "        function InterpretHealth(obj) return obj.status.goals > 7 end"}},
		"in conflict":         {text: twoScores, args: []string{"others"}, steps: []string{`sed -i 's/^---@kind: .*/---@kind: Score/' "$1"`, "true"}, refusal: "scores already defines", kept: "---@kind: Score"},
		"the other's name":    {text: twoScores, args: []string{"others"}, steps: []string{`sed -i 's/^---@name: .*/---@name: scores/' "$1"`, "true"}, refusal: "another customization with the name scores", kept: "---@name: scores"},
		"which of two":        {text: twoScores, refusal: "--edit NAME"},
		"none of that name":   {text: twoScores, args: []string{"goals"}, refusal: "no customization called goals"},
		"JSON":                {text: `{"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization", "metadata": {"name": "scores", "labels": {"a": "b"}}, "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Score"}, "customizations": {"healthInterpretation": {"luaScript": "function InterpretHealth(obj) return obj.status.goals > 1 end"}}}}`, steps: []string{setHealth}, output: "changed", want: []string{`"luaScript": "function InterpretHealth(obj) return obj.status.goals > 7 end\n"`, `"a": "b"`}},
		"list":                {text: "kind: List\nitems:\n  # ours\n  - " + strings.ReplaceAll(strings.TrimSpace(scoreCustomization), "\n", "\n    ") + "\n", steps: []string{setHealth}, output: "changed", want: []string{"# ours", "goals > 7"}},
		"new":                 {steps: []string{`sed -i -e 's/^---@name:.*/---@name: fresh/' -e 's/^---@apiVersion:.*/---@apiVersion: a.io\/v1/' -e 's/^---@kind:.*/---@kind: A/' -e 's/^---@rule: InterpretHealth.*/&\nfunction InterpretHealth(o) return true end/' "$1"`}, output: "fresh is changed", want: []string{"apiVersion: config.karmada.io/v1alpha1\nkind: ResourceInterpreterCustomization\nmetadata:\n  name: fresh\nspec:\n  target:\n    apiVersion: a.io/v1\n    kind: A\n"}},
		"beside others":       {text: "# settings\nkind: ConfigMap\n", args: []string{"fresh"}, steps: []string{`sed -i -e 's/^---@apiVersion:.*/---@apiVersion: a.io\/v1/' -e 's/^---@kind:.*/---@kind: A/' -e 's/^---@rule: InterpretHealth.*/&\nfunction InterpretHealth(o) return true end/' "$1"`}, output: "fresh is changed", want: []string{"# settings\nkind: ConfigMap\n---\napiVersion: config", "name: fresh"}},
		"changed meanwhile":   {text: scoreCustomization, steps: []string{setHealth + `; echo "# mine" >> "$FILE"`}, refusal: "somebody else has changed it", kept: "goals > 7", want: []string{"goals > 1", "# mine"}},
		"not YAML":            {text: "a: [", refusal: "reading "},
		"unknown field":       {text: strings.Replace(scoreCustomization, "replicaRevision", "replicaDecision", 1), refusal: "replicaDecision"},
	} {
		t.Run(name, func(t *testing.T) {
			useEditor(t, test.steps...)
			file := filepath.Join(t.TempDir(), "customization.yaml")
			t.Setenv("FILE", file)
			if test.text != "" {
				writeText(t, file, test.text)
			}
			output, err := run(t, newInterpret(), append([]string{"--edit", "-f", file}, test.args...)...)
			left, leftFile := kept(t)
			switch {
			case test.refusal == "" && (err != nil || left != ""):
				t.Fatalf("%v, kept: %s", err, left)
			case test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal) || strings.Contains(err.Error(), "\n")):
				t.Fatalf("got %v, want one line about %q", err, test.refusal)
			case test.kept == "" && left != "", test.kept != "" && (!strings.Contains(left, test.kept) || !strings.Contains(err.Error(), leftFile)):
				t.Fatalf("%v; kept in %s is:\n%s", err, leftFile, left)
			case !strings.Contains(output, test.output):
				t.Errorf("the output is %q, want %q", output, test.output)
			}
			text := readText(t, file)
			if len(test.want) == 0 && test.absent == "" && text != test.text {
				t.Errorf("the file is changed to:\n%s", text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("the file has no %q:\n%s", want, text)
				}
			}
			if test.absent != "" && strings.Contains(text, test.absent) {
				t.Errorf("the file still has %q:\n%s", test.absent, text)
			}
			if test.refusal == "" {
				if output, err := run(t, newInterpret(), "--check", "-f", file); err != nil && name != "list" && name != "beside others" {
					t.Errorf("what was written is not correct: %s, %v", output, err)
				}
			}
		})
	}
}

// --show-doc explains the functions. A problem is shown at the top of the text until it is fixed.
func TestInterpretEditExplains(t *testing.T) {
	file := filepath.Join(t.TempDir(), "customization.yaml")
	writeText(t, file, scoreCustomization)
	seen := useEditor(t, breakHealth, mendHealth)
	if output, err := run(t, newInterpret(), "--edit", "--show-doc", "-f", file); err != nil {
		t.Fatal(output, err)
	}
	if first := seen(0); !strings.Contains(first, "--## function Retain(desiredObj, observedObj)") || strings.Contains(first, "does not compile") {
		t.Errorf("the editor shows:\n%s", first)
	}
	if second := seen(1); !strings.Contains(second, "--## spec.customizations.healthInterpretation.luaScript: the script does not compile") ||
		!strings.Contains(second, "goals > > 7") || strings.Count(second, "--## function Retain(") != 1 {
		t.Errorf("after a problem the editor shows:\n%s", second)
	}
	seen = useEditor(t, "true")
	if output, err := run(t, newInterpret(), "--edit", "-f", file); err != nil || strings.Contains(seen(0), "--## function") || !strings.Contains(seen(0), "goals > 7") {
		t.Errorf("%s, %v; the editor shows:\n%s", output, err, seen(0))
	}
}

// Symbolic links and modes of files are preserved. If the file cannot be written, the text is kept.
func TestInterpretEditKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	writeText(t, file, scoreCustomization)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	useEditor(t, setHealth)
	if output, err := run(t, newInterpret(), "--edit", "-f", link); err != nil {
		t.Fatal(output, err)
	}
	at, err := os.Lstat(link)
	if err != nil || at.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", at, err)
	}
	if at, err := os.Stat(file); err != nil || at.Mode().Perm() != 0o600 || !strings.Contains(readText(t, file), "goals > 7") {
		t.Errorf("the file is %v, %v", at, err)
	}
	useEditor(t, `sed -i -e 's/goals > 7/goals > 8/' "$1"; rm -r "`+dir+`"`)
	_, err = run(t, newInterpret(), "--edit", "-f", file)
	if text, name := kept(t); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(text, "goals > 8") {
		t.Errorf("%v, kept in %q:\n%s", err, name, text)
	}
}

func TestInterpretEditRefuses(t *testing.T) {
	useEditor(t)
	for name, test := range map[string]struct{ args, refusal string }{
		"nothing given":  {"--edit", "give a file"},
		"two files":      {"--edit -f a -f b", "one file"},
		"standard input": {"--edit -f -", "one file"},
		"two modes":      {"--edit --check -f a", "give exactly one of"},
		"name to check":  {"--check -f a scores", "only --edit"},
	} {
		if _, err := run(t, newInterpret(), strings.Fields(test.args)...); err == nil || !strings.Contains(err.Error(), test.refusal) {
			t.Errorf("%s: got %v, want something about %q", name, err, test.refusal)
		}
	}
}

// I13: a customization in the federation can be edited. Concurrent changes are not overwritten.
func TestInterpretEditHub(t *testing.T) {
	hub := testenv.SharedAPIServer(t)
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(hub.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	made := func(name, kind string) *configv1alpha1.ResourceInterpreterCustomization {
		c := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}}}
		c.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: kind}
		c.Spec.Customizations.HealthInterpretation = &configv1alpha1.HealthInterpretation{LuaScript: "function InterpretHealth(obj) return obj.status.goals > 1 end"}
		if err := objects.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), c) })
		return c
	}
	scores := made("scores", "Score")
	made("results", "Result")
	script := func() string {
		t.Helper()
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(scores), scores); err != nil {
			t.Fatal(err)
		}
		return scores.Spec.Customizations.HealthInterpretation.LuaScript
	}
	flags := []string{"--edit", "--kubeconfig", writeKubeconfig(t, "mine", hub.RESTConfig()), "--context", "mine"}

	useEditor(t, breakHealth, mendHealth)
	if output, err := run(t, newInterpret(), append(flags, "scores")...); err != nil || !strings.Contains(output, "scores is changed in the federation") {
		t.Fatal(output, err)
	}
	if got := script(); got != "function InterpretHealth(obj) return obj.status.goals > 7 end\n" || scores.Labels["team"] != "a" {
		t.Errorf("the script is %q, labels are %v", got, scores.Labels)
	}

	for name, step := range map[string]string{
		"another customization with the name results": `sed -i 's/^---@name: .*/---@name: results/' "$1"`,
		"cannot be changed":                           `sed -i 's/^---@name: .*/---@name: goals/' "$1"`,
		"results already defines":                     `sed -i 's/^---@kind: .*/---@kind: Result/' "$1"`,
	} {
		useEditor(t, step, "true")
		_, err := run(t, newInterpret(), append(flags, "scores")...)
		if text, file := kept(t); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), file) || text == "" {
			t.Errorf("got %v, want %q; kept in %s:\n%s", err, name, file, text)
		}
	}

	// A concurrent change while the editor is open.
	begun, done := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "done")
	useEditor(t, `touch "`+begun+`"; while [ -e "`+begun+`" ] && [ ! -e "`+done+`" ]; do sleep 0.05; done; sed -i 's/goals > 7/goals > 9/' "$1"`)
	failed := make(chan error, 1)
	go func() {
		_, err := run(t, newInterpret(), append(flags, "scores")...)
		failed <- err
	}()
	testenv.Eventually(t, "the editor is open", func(context.Context) (bool, error) {
		_, err := os.Stat(begun)
		return err == nil, err
	})
	scores.Labels["team"] = "b"
	if err := objects.Update(t.Context(), scores); err != nil {
		t.Fatal(err)
	}
	writeText(t, done, "")
	err = <-failed
	if text, file := kept(t); err == nil || !strings.Contains(err.Error(), "somebody else has changed it") || !strings.Contains(err.Error(), file) || !strings.Contains(text, "goals > 9") {
		t.Errorf("in conflict: %v, kept in %s:\n%s", err, file, text)
	}
	if got := script(); !strings.Contains(got, "goals > 7") || scores.Labels["team"] != "b" {
		t.Errorf("the script is %q, labels are %v", got, scores.Labels)
	}

	useEditor(t)
	if _, err := run(t, newInterpret(), append(flags, "nobody")...); err == nil || !strings.Contains(err.Error(), "no customization called nobody") {
		t.Errorf("editing an unknown customization: %v", err)
	}
}
