// Package admission gives the hub the defaults and the rules of the federation's API that the schemas of its kinds
// cannot express: those that look at the namespace of a request, at several fields of a list at once, or at a second
// object. They are MutatingAdmissionPolicies and ValidatingAdmissionPolicies, evaluated by the API server itself, so
// that no web hook stands between a user and the API.
//
// Three things are out of the reach of such a policy, and done elsewhere:
//
//   - The permanent ID of a policy. There is nothing random in an expression, and the UID of a new object is not known
//     before it is stored. The hub manager labels new policies; from then on the rule here keeps the label.
//   - Two ResourceInterpreterCustomizations with a script for the same operation of the same kind. An expression sees
//     one object and cannot look for others. The interpreter takes the one that comes first by name.
//   - Two Clusters with the same spec.id, for the same reason. Joining checks it.
package admission
