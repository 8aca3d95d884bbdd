package userpolicy_test

import (
	"strings"
	"testing"
)

func TestCheckRights(t *testing.T) {
	const check = `authorizer.group('apps').resource('deployments').check('create').allowed()`
	for name, test := range map[string]struct{ resource, object, want string }{
		"none":                    {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"object.metadata.name != 'authorizer'"}]}}`, ""},
		"a validation":            {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"true"},{"expression":"` + check + `"}]}}`, "spec.validations[1].expression: "},
		"a condition":             {"mutatingadmissionpolicies", `{"spec":{"matchConditions":[{"name":"a","expression":"!` + check + `"}]}}`, "spec.matchConditions[0].expression: "},
		"a variable":              {"validatingadmissionpolicies", `{"spec":{"variables":[{"name":"a","expression":"has(object.spec) ? ` + check + ` : false"}]}}`, "spec.variables[0].expression: "},
		"a message":               {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"true","messageExpression":"string(` + check + `)"}]}}`, "messageExpression: "},
		"an annotation for audit": {"validatingadmissionpolicies", `{"spec":{"auditAnnotations":[{"key":"a","valueExpression":"string(` + check + `)"}]}}`, "valueExpression: "},
		"a mutation":              {"mutatingadmissionpolicies", `{"spec":{"mutations":[{"jsonPatch":{"expression":"` + check + ` ? [] : []"}}]}}`, "spec.mutations[0].jsonPatch.expression: "},
		"a webhook":               {"validatingwebhookconfigurations", `{"webhooks":[{"matchConditions":[{"name":"a","expression":"!` + check + `"}]}]}`, "webhooks[0].matchConditions[0].expression: "},
		"in a list":               {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"['a'].exists(x, ` + check + `)"}]}}`, "spec.validations[0].expression: "},
		"the request's own":       {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"authorizer.requestResource.check('x').allowed()"}]}}`, "spec.validations[0].expression: "},
		"a field of that name":    {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"object.spec.?authorizer.hasValue() && has(object.authorizer)"}]}}`, ""},
		"what cannot be parsed":   {"validatingadmissionpolicies", `{"spec":{"validations":[{"expression":"authorizer("}]}}`, ""},
		"no objects":              {"validatingwebhookconfigurations", `{"spec":1,"webhooks":["x"]}`, ""},
	} {
		err := kindOf(t, test.resource).CheckRights(decode(t, test.object))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
