// Package protection refuses deletions and scale-downs before a request leaves the gateway.
//
// Objects with the label resourcetemplate.karmada.io/deletion-protected=Always cannot be deleted. ProtectionPolicies select further objects
// that cannot be deleted, and limit how many replicas one request, or all requests in a window of time, may remove. Deleting a collection,
// a namespace or a definition counts as deleting its objects, and so does an eviction. A dry run of a change finds its effect on replicas
// and labels, for every type of patch. What is sent is what was checked: the request is restricted to the version of the object that was.
package protection
