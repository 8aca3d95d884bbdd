// Package protection keeps users from deleting or scaling down what they should not, before a request leaves the gateway.
//
// Objects with the label resourcetemplate.karmada.io/deletion-protected=Always cannot be deleted, and ProtectionPolicies say more: which
// objects cannot be deleted, and how many replicas may be taken away in one request or in some time. Deleting a collection or a namespace
// is deleting what is in it. What a request would do to replicas is found out by a dry run of it, whatever kind of patch it is.
package protection
