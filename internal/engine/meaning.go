package engine

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// followMeaning keeps the interpreter up to date with customizations and web hooks. Changed is told of which kinds the
// meaning may be another now.
func followMeaning(state *cell.Cell, meaning *interpreter.Interpreter, changed func(concerned func(schema.GroupVersionKind) bool)) {
	state.Customizations.Subscribe(func(_ cell.Key, old, now *configv1alpha1.ResourceInterpreterCustomization) {
		if err := meaning.SetCustomizations(state.Customizations.All()); err != nil {
			klog.Background().Info("some interpreter customizations are mistaken", "err", err)
		}
		changed(func(gvk schema.GroupVersionKind) bool { return customizes(old, gvk) || customizes(now, gvk) })
	})
	state.Webhooks.Subscribe(func(_ cell.Key, old, now *configv1alpha1.ResourceInterpreterWebhookConfiguration) {
		if err := meaning.SetWebhooks(state.Webhooks.All()); err != nil {
			klog.Background().Info("some interpreter web hooks are mistaken", "err", err)
		}
		changed(func(gvk schema.GroupVersionKind) bool { return hooks(old, gvk) || hooks(now, gvk) })
	})
}

func customizes(c *configv1alpha1.ResourceInterpreterCustomization, gvk schema.GroupVersionKind) bool {
	return c != nil && schema.FromAPIVersionAndKind(c.Spec.Target.APIVersion, c.Spec.Target.Kind) == gvk
}

func hooks(c *configv1alpha1.ResourceInterpreterWebhookConfiguration, gvk schema.GroupVersionKind) bool {
	if c == nil {
		return false
	}
	names := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(c.Webhooks, func(hook configv1alpha1.ResourceInterpreterWebhook) bool {
		return slices.ContainsFunc(hook.Rules, func(rule configv1alpha1.RuleWithOperations) bool {
			return names(rule.APIGroups, gvk.Group) && names(rule.APIVersions, gvk.Version) && names(rule.Kinds, gvk.Kind)
		})
	})
}
