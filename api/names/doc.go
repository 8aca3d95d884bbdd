// Package names holds the names that users and tools rely on: labels, annotations, finalizers, taints, namespaces,
// conditions' and events' reasons, and the names derived from other names. A name that is written down anywhere else
// is a mistake waiting to be made twice.
package names
