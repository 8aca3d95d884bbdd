package userpolicies

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// writesParameter reports whether a request writes a parameter.
func writesParameter(info *request.RequestInfo) bool {
	if info.APIGroup != userpolicy.Parameters.Group || info.Resource != userpolicy.Parameters.Resource || info.Subresource != "" {
		return false
	}
	switch info.Verb {
	case "create", "update", "patch", "delete":
		return true
	}
	return false
}

// serveParameter answers the write of a parameter when policies have it in all cells.
func (h *Handler) serveParameter(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	h.serveAndAwait(w, r, func(answer []byte) (awaited, bool) {
		return written(info, awaited{kind: userpolicy.ParameterKind, resource: userpolicy.Parameters, probe: parameterProbe}, answer)
	})
}

// parameterProbe returns a probe with a parameter of its own, which a mutating policy needs to change the request, and a validating one to refuse it
// once it is changed. For each kind of policy, an API server sees parameters in the order of their changes, so when both find this one they have
// also seen what was stored before.
func parameterProbe(on target) *probe {
	p := newProbe(on)
	version := userpolicy.Parameters.GroupVersion().String()
	p.objects = append(p.objects, probeObject{collection: pathOf(userpolicy.Parameters, ""), content: map[string]any{
		"apiVersion": version, "kind": userpolicy.ParameterKind, "metadata": map[string]any{"name": p.id, "labels": map[string]any{names.ProbeLabel: p.id}},
	}})
	kind := map[string]any{"apiVersion": version, "kind": userpolicy.ParameterKind}
	ref := map[string]any{"name": p.id, "parameterNotFoundAction": "Allow"}
	p.add("mutatingadmissionpolicies", "MutatingAdmissionPolicy", "spec", map[string]any{
		"failurePolicy": "Ignore", "reinvocationPolicy": "Never", "matchConstraints": p.match(), "paramKind": kind,
		"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": p.annotation()}}},
	})
	p.add("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "spec", map[string]any{"policyName": p.id, "paramRef": ref})
	p.add("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "spec", map[string]any{
		"failurePolicy": "Ignore", "matchConstraints": p.match(), "paramKind": kind,
		"validations": []any{map[string]any{"expression": "!has(object.metadata.annotations)"}},
	})
	p.add("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "spec", map[string]any{
		"policyName": p.id, "validationActions": []any{"Deny"}, "paramRef": ref,
	})
	p.seen = func(_ []byte, err error) bool { return err != nil && strings.Contains(err.Error(), "'"+p.id+"'") }
	return p
}
