package userpolicy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/userpolicy"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func kindOf(t *testing.T, resource string) userpolicy.Kind {
	t.Helper()
	kind, found := userpolicy.Of(schema.GroupResource{Group: userpolicy.Group, Resource: resource})
	if !found {
		t.Fatalf("%s is not known", resource)
	}
	return kind
}

func TestLimit(t *testing.T) {
	own, err := json.Marshal(map[string]any{"name": userpolicy.ConditionName, "expression": userpolicy.ConditionExpression})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ resource, object, want string }{
		"a policy":            {"validatingadmissionpolicies", `{"spec":{}}`, `{"spec":{"matchConditions":[OWN]}}`},
		"others stay":         {"mutatingadmissionpolicies", `{"spec":{"matchConditions":[{"name":"a"}]}}`, `{"spec":{"matchConditions":[{"name":"a"},OWN]}}`},
		"a forged one":        {"validatingadmissionpolicies", `{"spec":{"matchConditions":[{"name":"cellplane.io/users-only","expression":"true"}]}}`, `{"spec":{"matchConditions":[OWN]}}`},
		"twice":               {"validatingadmissionpolicies", `{"spec":{"matchConditions":[OWN,OWN]}}`, `{"spec":{"matchConditions":[OWN]}}`},
		"null":                {"validatingadmissionpolicies", `{"spec":{"matchConditions":null}}`, `{"spec":{"matchConditions":[OWN]}}`},
		"done":                {"validatingadmissionpolicies", `{"spec":{"matchConditions":[OWN]}}`, ""},
		"every webhook":       {"mutatingwebhookconfigurations", `{"webhooks":[{"name":"a"},{"name":"b","matchConditions":[OWN]}]}`, `{"webhooks":[{"name":"a","matchConditions":[OWN]},{"name":"b","matchConditions":[OWN]}]}`},
		"no webhooks":         {"validatingwebhookconfigurations", `{}`, ""},
		"a binding":           {"validatingadmissionpolicybindings", `{"spec":{}}`, ""},
		"a policy, no fields": {"validatingadmissionpolicies", `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(t, test.resource)
			object := decode(t, strings.ReplaceAll(test.object, "OWN", string(own)))
			changed := kind.Limit(object)
			if changed != (test.want != "") {
				t.Errorf("changed: %t", changed)
			}
			if test.want == "" {
				return
			}
			if want := decode(t, strings.ReplaceAll(test.want, "OWN", string(own))); !reflect.DeepEqual(object, want) {
				t.Errorf("got %v, want %v", object, want)
			}
			if !kind.Limited(object) || kind.Limit(object) {
				t.Error("a second time changes it again")
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ resource, name, object, want string }{
		"a policy":               {"validatingadmissionpolicies", "p", `{"spec":{"validations":[]}}`, ""},
		"parameters":             {"mutatingadmissionpolicies", "p", `{"spec":{"paramKind":{"apiVersion":"cellplane.io/v1alpha1","kind":"AdmissionParameter"}}}`, ""},
		"other parameters":       {"mutatingadmissionpolicies", "p", `{"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`, "spec.paramKind"},
		"odd parameters":         {"validatingadmissionpolicies", "p", `{"spec":{"paramKind":"ConfigMap"}}`, "spec.paramKind"},
		"no parameters":          {"validatingadmissionpolicies", "p", `{"spec":{"paramKind":null}}`, ""},
		"a name of the fence":    {"validatingadmissionpolicies", "cellplane-gateway", `{}`, "belong to the control plane"},
		"a name of the hub":      {"validatingadmissionpolicybindings", "x.cellplane.io", `{}`, "belong to the control plane"},
		"a reference":            {"validatingadmissionpolicybindings", "p", `{"spec":{"paramRef":{"name":"x","parameterNotFoundAction":"Allow"}}}`, ""},
		"a reference elsewhere":  {"mutatingadmissionpolicybindings", "p", `{"spec":{"paramRef":{"name":"x","namespace":"shop","parameterNotFoundAction":"Allow"}}}`, "spec.paramRef.namespace"},
		"one that may block too": {"validatingadmissionpolicybindings", "p", `{"spec":{"paramRef":{"name":"x"}}}`, "must be Allow"},
		"one that may block":     {"validatingadmissionpolicybindings", "p", `{"spec":{"paramRef":{"name":"x","parameterNotFoundAction":"Deny"}}}`, "must be Allow"},
		"a binding":              {"mutatingadmissionpolicybindings", "p", `{"spec":{"policyName":"p"}}`, ""},
		"a binding of the fence": {"validatingadmissionpolicybindings", "p", `{"spec":{"policyName":"cellplane-freeze"}}`, "cannot be bound"},
		"a URL":                  {"validatingwebhookconfigurations", "w", `{"webhooks":[{"clientConfig":{"url":"https://x"}}]}`, ""},
		"a Service":              {"mutatingwebhookconfigurations", "w", `{"webhooks":[{"clientConfig":{"url":"https://x"}},{"clientConfig":{"service":{"name":"x"}}}]}`, "webhooks[1].clientConfig.service"},
		"something else":         {"mutatingwebhookconfigurations", "w", `{"webhooks":"x","spec":1}`, ""},
	} {
		err := kindOf(t, test.resource).Check(test.name, decode(t, test.object))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
