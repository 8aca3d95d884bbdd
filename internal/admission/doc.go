// Package admission installs defaults and rules on the hub that the schemas of the kinds cannot express: those
// about the namespace of a request, several fields of a list, or another object. They are MutatingAdmissionPolicies
// and ValidatingAdmissionPolicies, evaluated by the API server itself, so no webhook is needed.
//
// Some checks are not possible in such a policy and are done elsewhere:
//
//   - The permanent ID of a policy. Expressions have no randomness, and the UID of a new object is not known before it is stored. The hub manager labels new policies; the rule here then protects the label.
//   - Whether a script compiles. `cellplane interpret` checks it, and engines report it.
//   - Two ResourceInterpreterCustomizations with a script for the same operation of a kind that are created at the same moment: the API server's cache may lack the other. The interpreter uses the first by name.
//   - Two Clusters with the same spec.id. Joining checks it.
package admission
