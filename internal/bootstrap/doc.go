// Package bootstrap makes a hub and cells a federation: it writes the namespaces, Cells, the first topology and the rights of the
// parts. Everything can be repeated. Local federations and installations on Kubernetes share it.
package bootstrap
