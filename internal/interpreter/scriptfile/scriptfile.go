package scriptfile

import (
	"fmt"
	"slices"
	"strings"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/customization"
)

const (
	nameMark       = "---@name:"
	apiVersionMark = "---@apiVersion:"
	kindMark       = "---@kind:"
	ruleMark       = "---@rule:"
	explanation    = "--##"
)

// Write returns the file of a customization, without explanations. It fails if a script has lines that look like
// marks.
func Write(c *configv1alpha1.ResourceInterpreterCustomization) (string, error) {
	var file strings.Builder
	line := func(mark, value string) { file.WriteString(strings.TrimSpace(mark+" "+value) + "\n") }
	line(nameMark, c.Name)
	line(apiVersionMark, c.Spec.Target.APIVersion)
	line(kindMark, c.Spec.Target.Kind)
	for _, rule := range customization.Rules() {
		line(ruleMark, string(rule.Operation))
		if script := bare(rule.Script(c)); script != "" {
			file.WriteString(script + "\n")
		}
	}
	again := c.DeepCopy()
	if err := Read(file.String(), again); err != nil || !Same(c, again) {
		return "", fmt.Errorf("a script of customization %s has lines that begin with %s or %s, which mean something else when scripts are edited; edit the object itself", c.Name, ruleMark, explanation)
	}
	return file.String(), nil
}

// Read updates a customization from a file. Unchanged scripts are kept byte for byte.
func Read(file string, into *configv1alpha1.ResourceInterpreterCustomization) error {
	changed := into.DeepCopy()
	scripts, err := readLines(Bare(file), changed)
	if err != nil {
		return err
	}
	for _, rule := range customization.Rules() {
		script := bare(scripts[rule.Operation])
		if script == bare(rule.Script(into)) {
			continue
		}
		if script != "" {
			script += "\n"
		}
		rule.SetScript(changed, script)
	}
	*into = *changed
	return nil
}

// readLines sets the name and the kind, and returns the scripts.
func readLines(file string, into *configv1alpha1.ResourceInterpreterCustomization) (map[configv1alpha1.InterpreterOperation]string, error) {
	into.Name, into.Spec.Target = "", configv1alpha1.CustomizationTarget{}
	scripts := map[configv1alpha1.InterpreterOperation]string{}
	var current configv1alpha1.InterpreterOperation
	for line := range strings.Lines(file) {
		mark, value := cutMark(line)
		switch mark {
		case nameMark:
			into.Name = value
		case apiVersionMark:
			into.Spec.Target.APIVersion = value
		case kindMark:
			into.Spec.Target.Kind = value
		case ruleMark:
			rule, err := ruleCalled(value)
			if err != nil {
				return nil, err
			}
			if _, twice := scripts[rule]; twice {
				return nil, fmt.Errorf("the line %q occurs twice", ruleMark+" "+value)
			}
			current, scripts[rule] = rule, ""
		default:
			if current == "" && strings.TrimSpace(line) != "" {
				return nil, fmt.Errorf("the line %q is before the first %s and belongs to no rule", strings.TrimSpace(line), ruleMark)
			}
			scripts[current] += line
		}
	}
	return scripts, nil
}

// cutMark returns the mark that a line begins with and what comes after it; no mark for a line of a script.
func cutMark(line string) (mark, value string) {
	for _, mark := range []string{nameMark, apiVersionMark, kindMark, ruleMark} {
		if value, ok := strings.CutPrefix(line, mark); ok {
			return mark, strings.TrimSpace(value)
		}
	}
	return "", line
}

func ruleCalled(name string) (configv1alpha1.InterpreterOperation, error) {
	var known []string
	for _, rule := range customization.Rules() {
		if strings.EqualFold(string(rule.Operation), name) {
			return rule.Operation, nil
		}
		known = append(known, string(rule.Operation))
	}
	return "", fmt.Errorf("unknown rule %q; known rules: %s", name, strings.Join(known, ", "))
}

// Same reports whether two customizations are equal in name and scripts.
func Same(a, b *configv1alpha1.ResourceInterpreterCustomization) bool {
	return a.Name == b.Name && a.Spec.Target == b.Spec.Target && !slices.ContainsFunc(customization.Rules(), func(rule customization.Rule) bool {
		return bare(rule.Script(a)) != bare(rule.Script(b))
	})
}

// bare returns a script without surrounding empty lines and with normalized line ends.
func bare(script string) string {
	return strings.Trim(strings.ReplaceAll(script, "\r", ""), "\n")
}

// Bare returns a file without its explanations.
func Bare(file string) string {
	var kept strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(file, "\r", "")) {
		if !strings.HasPrefix(line, explanation) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
