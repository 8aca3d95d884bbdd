package scriptfile

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/customization"
)

// written returns the file of a customization with scripts by operation.
func written(t *testing.T, scripts map[configv1alpha1.InterpreterOperation]string) (*configv1alpha1.ResourceInterpreterCustomization, string) {
	t.Helper()
	c := &configv1alpha1.ResourceInterpreterCustomization{}
	c.Name, c.Spec.Target = "scores", configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Score"}
	for _, rule := range customization.Rules() {
		rule.SetScript(c, scripts[rule.Operation])
	}
	file, err := Write(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

// Scripts are unchanged after they are written with explanations and read again, or else writing fails.
func TestRoundTrip(t *testing.T) {
	line := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "end", "-- a comment", "---@param obj table", "  return {}", "\t", "---@rule: Retain", "--## x", "x\r"}))
	rapid.Check(t, func(t *rapid.T) {
		c := &configv1alpha1.ResourceInterpreterCustomization{}
		c.Name, c.Spec.Target = "scores", configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Score"}
		marks := false
		for _, rule := range customization.Rules() {
			script := strings.Join(rapid.SliceOfN(line, 0, 4).Draw(t, string(rule.Operation)), "\n")
			marks = marks || strings.Contains(script, "---@rule:") || strings.Contains(script, "--##") || strings.Contains(script, "---@")
			rule.SetScript(c, script)
		}
		file, err := Write(c)
		if err != nil {
			if !marks {
				t.Fatalf("not written: %v", err)
			}
			return
		}
		again := c.DeepCopy()
		if err := Read(Explain(Explain(file, "a fault", true), "another\nfault", rapid.Bool().Draw(t, "rules")), again); err != nil {
			t.Fatal(err)
		}
		for _, rule := range customization.Rules() {
			if got, want := rule.Script(again), rule.Script(c); got != want {
				t.Fatalf("%s was\n%q\nand is\n%q", rule.Operation, want, got)
			}
		}
		if again.Name != c.Name || again.Spec.Target != c.Spec.Target {
			t.Fatalf("got %+v", again)
		}
	})
}

func TestRead(t *testing.T) {
	health, revise := configv1alpha1.InterpreterOperationInterpretHealth, configv1alpha1.InterpreterOperationReviseReplica
	c, file := written(t, map[configv1alpha1.InterpreterOperation]string{health: "-- mine\nreturn true", revise: "return obj\n\n"})
	for name, test := range map[string]struct{ old, replacement, health, revise, fault string }{
		"as it was":           {old: "scores", replacement: "scores", health: "-- mine\nreturn true", revise: "return obj\n\n"},
		"changed":             {old: "return true", replacement: "return false", health: "-- mine\nreturn false\n", revise: "return obj\n\n"},
		"taken away":          {old: "-- mine\nreturn true\n", health: "", revise: "return obj\n\n"},
		"rule taken away":     {old: "---@rule: ReviseReplica\nreturn obj\n", health: "-- mine\nreturn true", revise: ""},
		"however it is put":   {old: "---@rule: ReviseReplica", replacement: "---@rule:reviseReplica ", health: "-- mine\nreturn true", revise: "return obj\n\n"},
		"by another system":   {old: "\n", replacement: "\r\n", health: "-- mine\nreturn true", revise: "return obj\n\n"},
		"unknown rule":        {old: "ReviseReplica", replacement: "Guess", fault: `unknown rule "Guess"`},
		"a rule twice":        {old: "ReviseReplica", replacement: "InterpretHealth", fault: "occurs twice"},
		"belongs to nothing":  {old: "---@name", replacement: "return 1\n---@name", fault: `"return 1"`},
		"a comment to no one": {old: "---@name", replacement: "-- hello\n---@name", fault: `"-- hello"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.DeepCopy()
			err := Read(strings.ReplaceAll(file, test.old, test.replacement), got)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) || !Same(got, c) {
					t.Errorf("got %v and %+v, want something about %s and no change", err, got.Spec, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range customization.Rules() {
				if want := map[configv1alpha1.InterpreterOperation]string{health: test.health, revise: test.revise}[rule.Operation]; rule.Script(got) != want {
					t.Errorf("%s is %q, want %q", rule.Operation, rule.Script(got), want)
				}
			}
		})
	}
}

// Explanations are optional. They cover every rule, with the function that its script has to define.
func TestExplain(t *testing.T) {
	_, file := written(t, nil)
	for _, rule := range customization.Rules() {
		if !strings.Contains(Explain(file, "", true), "---@rule: "+string(rule.Operation)+"\n--## "+strings.SplitN(rulesExplained[rule.Operation], "\n", 2)[0]) ||
			!strings.Contains(rulesExplained[rule.Operation], "function "+rule.Function+"(") {
			t.Errorf("%s is not explained", rule.Operation)
		}
	}
	plain := Explain(file, "line 3 is\nodd", false)
	if strings.Contains(plain, "returns") || !strings.Contains(plain, "--## line 3 is\n--## odd\n") {
		t.Errorf("got:\n%s", plain)
	}
	if Bare(plain) != file {
		t.Errorf("without explanations it is:\n%s", Bare(plain))
	}
}

func TestWriteRefusesMarks(t *testing.T) {
	for _, script := range []string{"return 1\n---@rule: Retain\nreturn 2", "--## mine\nreturn 1", "x = [[\n---@name: other\n]]"} {
		c := &configv1alpha1.ResourceInterpreterCustomization{}
		c.Name = "scores"
		customization.Rules()[0].SetScript(c, script)
		if file, err := Write(c); err == nil || !strings.Contains(err.Error(), "scores") {
			t.Errorf("%q is written as\n%s", script, file)
		}
	}
}
