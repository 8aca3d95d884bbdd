// Package names defines the names that users and tools rely on: labels, annotations, finalizers, taints,
// namespaces, conditions, reasons, and the names derived from other names. They are defined nowhere else.
package names
