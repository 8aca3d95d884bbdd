package customization

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter/lua"
)

// Set is a snapshot of compiled customizations. It is immutable and safe for concurrent use.
type Set struct {
	runner  *lua.Runner
	kinds   map[schema.GroupVersionKind]map[configv1alpha1.InterpreterOperation][]script
	sources map[source]script
}

// script is a compiled script or a compile error. A script that does not compile still claims its operation: a
// fallback to another layer would silently do something else than the user asked for.
type script struct {
	compiled *lua.Script
	err      error
}

type source struct{ name, function, text string }

// Compile builds a set. Scripts that are unchanged since a previous set (which may be nil) are not compiled again.
// An invalid customization does not affect the others: its invalid operations fail when used, and the error reports
// all problems.
func Compile(runner *lua.Runner, customizations []*configv1alpha1.ResourceInterpreterCustomization, previous *Set) (*Set, error) {
	set := &Set{
		runner:  runner,
		kinds:   map[schema.GroupVersionKind]map[configv1alpha1.InterpreterOperation][]script{},
		sources: map[source]script{},
	}
	sorted := slices.Clone(customizations)
	slices.SortFunc(sorted, func(a, b *configv1alpha1.ResourceInterpreterCustomization) int {
		return strings.Compare(a.Name, b.Name)
	})
	var problems []error
	for _, c := range sorted {
		group, err := schema.ParseGroupVersion(c.Spec.Target.APIVersion)
		if err != nil {
			problems = append(problems, fmt.Errorf("ResourceInterpreterCustomization %s: spec.target.apiVersion: %w", c.Name, err))
			continue
		}
		gvk := group.WithKind(c.Spec.Target.Kind)
		if set.kinds[gvk] == nil {
			set.kinds[gvk] = map[configv1alpha1.InterpreterOperation][]script{}
		}
		for _, r := range rules {
			text := r.Script(c)
			if text == "" {
				continue
			}
			compiled := set.compile(source{c.Name, r.Function, text}, r, previous)
			if compiled.err != nil {
				problems = append(problems, compiled.err)
			}
			set.kinds[gvk][r.Operation] = append(set.kinds[gvk][r.Operation], compiled)
		}
	}
	return set, errors.Join(problems...)
}

func (s *Set) compile(from source, r Rule, previous *Set) script {
	if previous != nil {
		if known, ok := previous.sources[from]; ok {
			s.sources[from] = known
			return known
		}
	}
	compiled, err := lua.Compile(scriptName(from.name, r), r.Function, from.text)
	if err != nil {
		err = fmt.Errorf("ResourceInterpreterCustomization %s: spec.customizations.%s.luaScript: %w", from.name, r.Field, err)
	}
	result := script{compiled: compiled, err: err}
	s.sources[from] = result
	return result
}

func scriptName(customization string, r Rule) string {
	return "ResourceInterpreterCustomization " + customization + " (" + r.Field + ")"
}

// Supports reports whether a customization implements an operation for a kind.
func (s *Set) Supports(gvk schema.GroupVersionKind, op configv1alpha1.InterpreterOperation) bool {
	return s != nil && len(s.kinds[gvk][op]) > 0
}

// Validate returns the problems of a customization and its conflicts with others: only dependencies may be
// interpreted by several customizations of one kind.
func Validate(c *configv1alpha1.ResourceInterpreterCustomization, others []*configv1alpha1.ResourceInterpreterCustomization) error {
	var problems []error
	if c.Spec.Target.Kind == "" || c.Spec.Target.APIVersion == "" {
		problems = append(problems, errors.New("spec.target: apiVersion and kind are required"))
	}
	if _, err := schema.ParseGroupVersion(c.Spec.Target.APIVersion); err != nil {
		problems = append(problems, fmt.Errorf("spec.target.apiVersion: %w", err))
	}
	scripts := 0
	for _, r := range rules {
		text := r.Script(c)
		if text == "" {
			continue
		}
		scripts++
		if _, err := lua.Compile(scriptName(c.Name, r), r.Function, text); err != nil {
			problems = append(problems, fmt.Errorf("spec.customizations.%s.luaScript: %w", r.Field, err))
		}
		for _, other := range others {
			if other.Name != c.Name && other.Spec.Target == c.Spec.Target && r.Script(other) != "" &&
				r.Operation != configv1alpha1.InterpreterOperationInterpretDependency {
				problems = append(problems, fmt.Errorf("spec.customizations.%s: ResourceInterpreterCustomization %s already defines it for this kind", r.Field, other.Name))
			}
		}
	}
	if scripts == 0 {
		problems = append(problems, errors.New("spec.customizations: at least one script is required"))
	}
	return errors.Join(problems...)
}
