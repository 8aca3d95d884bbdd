// Package protection refuses deletions and scale-downs before a request leaves the gateway.
//
// Objects with the label resourcetemplate.karmada.io/deletion-protected=Always cannot be deleted. ProtectionPolicies select further objects
// that cannot be deleted, and limit how many replicas one request, or all requests in a window of time, may remove. Deleting a collection
// or a namespace counts as deleting its objects. A dry run of the request finds its effect on replicas, for every type of patch.
package protection
