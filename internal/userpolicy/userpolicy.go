// Package userpolicy knows the admission policies and webhooks that users configure: which of them can be enforced in a federation, and how
// they are limited to the requests of users.
//
// A policy is stored on the hub and copied into every cell. The API servers evaluate it for requests that a gateway forwards for a user, and
// for no others: the engines, the hub manager and the gateways themselves must never be blocked by it. A match condition expresses this.
// Gateways add it when a policy is written, hub managers when it is missing, and the replicator to every copy.
//
// An API server looks for parameters before it checks match conditions, and a problem with them refuses the requests of everybody. Parameters are
// therefore AdmissionParameters, a kind that every API server has, which are copied into every cell. If there are none, the policy must allow
// the request.
package userpolicy

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// Group is the API group of policies and webhooks.
const Group = "admissionregistration.k8s.io"

// Kind is one of the kinds that configure admission.
type Kind struct {
	Resource schema.GroupVersionResource
	Kind     string
	form     form
}

// form is where a kind has its match conditions.
type form int

const (
	policy  form = iota // in the spec
	webhook             // in each webhook
	binding             // nowhere
)

var kinds = []Kind{
	kind("validatingadmissionpolicies", "ValidatingAdmissionPolicy", policy),
	kind("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", binding),
	kind("mutatingadmissionpolicies", "MutatingAdmissionPolicy", policy),
	kind("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", binding),
	kind("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", webhook),
	kind("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", webhook),
}

func kind(resource, name string, f form) Kind {
	return Kind{Resource: schema.GroupVersionResource{Group: Group, Version: "v1", Resource: resource}, Kind: name, form: f}
}

// Kinds returns all kinds.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// Of returns the kind of a resource.
func Of(resource schema.GroupResource) (Kind, bool) {
	if resource.Group != Group {
		return Kind{}, false
	}
	for _, k := range kinds {
		if k.Resource.Resource == resource.Resource {
			return k, true
		}
	}
	return Kind{}, false
}

// Conditional reports whether objects of the kind have match conditions.
func (k Kind) Conditional() bool { return k.form != binding }

// Binds reports whether the kind is a binding of policies.
func (k Kind) Binds() bool { return k.form == binding }

// Reserved reports the names of the control plane's own policies.
func Reserved(name string) bool {
	return strings.HasPrefix(name, "cellplane-") || strings.HasSuffix(name, ".cellplane.io")
}

// ConditionName is the name of the match condition of users' policies.
const ConditionName = "cellplane.io/users-only"

// ConditionExpression is true for requests that a gateway forwards for a user.
var ConditionExpression = fmt.Sprintf("has(request.userInfo.extra) && '%s' in request.userInfo.extra", names.UserExtra)

// Limit adds the match condition to an object, and reports whether that changed it.
func (k Kind) Limit(object map[string]any) bool {
	switch k.form {
	case policy:
		spec, ok := object["spec"].(map[string]any)
		return ok && limit(spec)
	case webhook:
		changed := false
		for _, hook := range webhooksOf(object) {
			changed = limit(hook) || changed
		}
		return changed
	default:
		return false
	}
}

// Limited reports whether an object has the match condition.
func (k Kind) Limited(object map[string]any) bool {
	switch k.form {
	case policy:
		spec, _ := object["spec"].(map[string]any)
		return limited(spec)
	case webhook:
		for _, hook := range webhooksOf(object) {
			if !limited(hook) {
				return false
			}
		}
	}
	return true
}

func webhooksOf(object map[string]any) []map[string]any {
	list, _ := object["webhooks"].([]any)
	var hooks []map[string]any
	for _, item := range list {
		if hook, ok := item.(map[string]any); ok {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

const conditionsField = "matchConditions"

// limit adds the match condition to the fields that contain match conditions. One of its name with another expression is replaced.
func limit(fields map[string]any) bool {
	if limited(fields) {
		return false
	}
	own := map[string]any{"name": ConditionName, "expression": ConditionExpression}
	list, _ := fields[conditionsField].([]any)
	all := make([]any, 0, len(list)+1)
	for _, item := range list {
		if condition, ok := item.(map[string]any); ok && condition["name"] == ConditionName {
			continue
		}
		all = append(all, item)
	}
	fields[conditionsField] = append(all, own)
	return true
}

func limited(fields map[string]any) bool {
	list, _ := fields[conditionsField].([]any)
	found := 0
	for _, item := range list {
		condition, ok := item.(map[string]any)
		if ok && condition["name"] == ConditionName {
			found++
			if condition["expression"] != ConditionExpression {
				return false
			}
		}
	}
	return found == 1
}

// Check returns why an object cannot be enforced in a federation, in one sentence, or nil. Fields that are missing are not looked for, so it can
// also check the body of a server-side apply.
func (k Kind) Check(name string, object map[string]any) error {
	if Reserved(name) {
		return fmt.Errorf("metadata.name: names that begin with cellplane- or end with .cellplane.io belong to the control plane; use another name")
	}
	spec, _ := object["spec"].(map[string]any)
	switch k.form {
	case policy:
		if err := checkParamKind(spec["paramKind"]); err != nil {
			return err
		}
	case binding:
		if target, _ := spec["policyName"].(string); Reserved(target) {
			return fmt.Errorf("spec.policyName: %s belongs to the control plane and cannot be bound", target)
		}
		if err := checkParamRef(spec["paramRef"]); err != nil {
			return err
		}
	case webhook:
		for i, hook := range webhooksOf(object) {
			client, _ := hook["clientConfig"].(map[string]any)
			if client["service"] != nil {
				return fmt.Errorf("webhooks[%d].clientConfig.service: the control planes of a federation cannot reach its Services; use clientConfig.url", i)
			}
		}
	}
	return nil
}

// Parameters is the resource of parameters.
var Parameters = cellplanev1alpha1.GroupVersion.WithResource("admissionparameters")

// ParameterKind is the kind of parameters.
const ParameterKind = "AdmissionParameter"

// checkParamKind accepts one kind only: an API server that does not serve the kind would refuse the control plane's own requests.
func checkParamKind(kind any) error {
	if kind == nil {
		return nil
	}
	fields, _ := kind.(map[string]any)
	if version := Parameters.GroupVersion().String(); fields["apiVersion"] != version || fields["kind"] != ParameterKind {
		return fmt.Errorf("spec.paramKind: parameters in a federation are of apiVersion %s and kind %s, which every cell has a copy of", version, ParameterKind)
	}
	return nil
}

// checkParamRef accepts references to parameters that block nothing if they are missing.
func checkParamRef(ref any) error {
	if ref == nil {
		return nil
	}
	fields, _ := ref.(map[string]any)
	if namespace, _ := fields["namespace"].(string); namespace != "" {
		return fmt.Errorf("spec.paramRef.namespace: parameters in a federation are of kind %s, which has no namespaces; remove it", ParameterKind)
	}
	if fields["parameterNotFoundAction"] != "Allow" {
		return fmt.Errorf("spec.paramRef.parameterNotFoundAction: must be Allow, because Deny would also refuse the requests of the control plane while there are no parameters")
	}
	return nil
}
