// Package admission gives the hub the defaults and the rules of the federation's API that the schemas of its kinds
// cannot express: those that look at the namespace of a request, at several fields of a list at once, or at a second
// object. They are MutatingAdmissionPolicies and ValidatingAdmissionPolicies, evaluated by the API server itself, so
// that no webhook stands between a user and the API.
//
// Some things are out of the reach of such a policy, and done elsewhere:
//
//   - The permanent ID of a policy. There is nothing random in an expression, and the UID of a new object is not known
//     before it is stored. The hub manager labels new policies; from then on the rule here keeps the label.
//   - Whether a script compiles. `cellplane interpret` tells, and engines do when they run it.
//   - Two ResourceInterpreterCustomizations with a script for the same operation of the same kind that are created in the
//     same moment: others are seen as the API server has followed them. The interpreter takes the one that comes first by name.
//   - Two Clusters with the same spec.id. Joining checks it.
package admission
