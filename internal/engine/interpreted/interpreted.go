// Package interpreted keeps an interpreter up to date with the customizations and webhooks in a cell.
package interpreted

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/interpreter"
)

// Follow keeps an interpreter up to date with a cell that is not started yet. It calls changed with a function that
// reports whether a kind is affected.
func Follow(state *cell.Cell, i *interpreter.Interpreter, changed func(affected func(schema.GroupVersionKind) bool)) {
	state.Customizations.Subscribe(func(_ cell.Key, old, now *configv1alpha1.ResourceInterpreterCustomization) {
		if err := i.SetCustomizations(state.Customizations.All()); err != nil {
			klog.Background().Info("some interpreter customizations are invalid", "err", err)
		}
		changed(func(gvk schema.GroupVersionKind) bool { return customizes(old, gvk) || customizes(now, gvk) })
	})
	state.Webhooks.Subscribe(func(_ cell.Key, old, now *configv1alpha1.ResourceInterpreterWebhookConfiguration) {
		if err := i.SetWebhooks(state.Webhooks.All()); err != nil {
			klog.Background().Info("some interpreter webhooks are invalid", "err", err)
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
	matches := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(c.Webhooks, func(hook configv1alpha1.ResourceInterpreterWebhook) bool {
		return slices.ContainsFunc(hook.Rules, func(rule configv1alpha1.RuleWithOperations) bool {
			return matches(rule.APIGroups, gvk.Group) && matches(rule.APIVersions, gvk.Version) && matches(rule.Kinds, gvk.Kind)
		})
	})
}
