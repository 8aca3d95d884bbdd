package customization

import (
	"slices"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
)

// Rule is one operation a customization may hold a script for.
type Rule struct {
	// Operation is what the script is for.
	Operation configv1alpha1.InterpreterOperation
	// Field is the API field of the script: spec.customizations.<Field>.luaScript.
	Field string
	// Function is what the script has to define.
	Function string

	script    func(*configv1alpha1.CustomizationRules) string
	setScript func(*configv1alpha1.CustomizationRules, string)
}

// Rules returns all rules in the order of the API.
func Rules() []Rule { return slices.Clone(rules) }

// Script returns the script of a customization for the rule, or an empty string.
func (r Rule) Script(c *configv1alpha1.ResourceInterpreterCustomization) string {
	return r.script(&c.Spec.Customizations)
}

// SetScript sets the script of a customization for the rule; an empty script removes it.
func (r Rule) SetScript(c *configv1alpha1.ResourceInterpreterCustomization, script string) {
	r.setScript(&c.Spec.Customizations, script)
}

var rules = []Rule{
	newRule(configv1alpha1.InterpreterOperationRetain, "retention", "Retain",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.LocalValueRetention { return &r.Retention }),
	newRule(configv1alpha1.InterpreterOperationInterpretReplica, "replicaResource", "GetReplicas",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.ReplicaResourceRequirement {
			return &r.ReplicaResource
		}),
	newRule(configv1alpha1.InterpreterOperationInterpretComponent, "componentResource", "GetComponents",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.ComponentResourceRequirement {
			return &r.ComponentResource
		}),
	newRule(configv1alpha1.InterpreterOperationReviseReplica, "replicaRevision", "ReviseReplica",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.ReplicaRevision { return &r.ReplicaRevision }),
	newRule(configv1alpha1.InterpreterOperationInterpretStatus, "statusReflection", "ReflectStatus",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.StatusReflection {
			return &r.StatusReflection
		}),
	newRule(configv1alpha1.InterpreterOperationAggregateStatus, "statusAggregation", "AggregateStatus",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.StatusAggregation {
			return &r.StatusAggregation
		}),
	newRule(configv1alpha1.InterpreterOperationInterpretHealth, "healthInterpretation", "InterpretHealth",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.HealthInterpretation {
			return &r.HealthInterpretation
		}),
	newRule(configv1alpha1.InterpreterOperationInterpretDependency, "dependencyInterpretation", "GetDependencies",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.DependencyInterpretation {
			return &r.DependencyInterpretation
		}),
	newRule(configv1alpha1.InterpreterOperationInterpretRollout, "rolloutInterpretation", "InterpretRollout",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.RolloutInterpretation {
			return &r.RolloutInterpretation
		}),
	newRule(configv1alpha1.InterpreterOperationReviseRollout, "rolloutRevision", "ReviseRollout",
		func(r *configv1alpha1.CustomizationRules) **configv1alpha1.RolloutRevision { return &r.RolloutRevision }),
}

// luaRule is the common form of the rules in the API.
type luaRule struct {
	LuaScript string `json:"luaScript"`
}

// newRule returns the rule for a field of the API.
func newRule[T ~struct {
	LuaScript string `json:"luaScript"`
}](op configv1alpha1.InterpreterOperation, field, function string, at func(*configv1alpha1.CustomizationRules) **T) Rule {
	return Rule{
		Operation: op, Field: field, Function: function,
		script: func(r *configv1alpha1.CustomizationRules) string {
			if *at(r) == nil {
				return ""
			}
			return luaRule(**at(r)).LuaScript
		},
		setScript: func(r *configv1alpha1.CustomizationRules, text string) {
			if text == "" {
				*at(r) = nil
				return
			}
			value := T(luaRule{text})
			*at(r) = &value
		},
	}
}
