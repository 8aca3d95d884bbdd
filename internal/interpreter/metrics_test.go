package interpreter_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// Metrics report the duration and the failures of scripts.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(interpreter.Collectors()...)
	custom := &configv1alpha1.ResourceInterpreterCustomization{}
	custom.Name = "gadgets"
	custom.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Gadget"}
	custom.Spec.Customizations.HealthInterpretation = &configv1alpha1.HealthInterpretation{LuaScript: `
function InterpretHealth(obj)
  if obj.broken then error("broken") end
  return true
end`}
	i := interpreter.New(interpreter.Options{})
	if err := i.SetCustomizations([]*configv1alpha1.ResourceInterpreterCustomization{custom}); err != nil {
		t.Fatal(err)
	}
	gadget := func(broken bool) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget", "broken": broken}}
	}
	if _, err := i.Health(t.Context(), gadget(false)); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Health(t.Context(), gadget(true)); err == nil {
		t.Fatal("a broken script succeeded")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetValue())
			}
			if metric.GetHistogram().GetSampleCount() > 0 {
				seen[strings.Join(labels, " ")] = true
			}
		}
	}
	for _, want := range []string{"customization InterpretHealth success", "customization InterpretHealth error"} {
		if !seen[want] {
			t.Errorf("nothing was measured for %q: %v", want, seen)
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
