// Package schedule decides which member clusters hold a template and how its replicas are divided among them.
//
// It is a pure function of a binding and the clusters: no clients, no clock. The same input always gives the same
// result, regardless of the order of the clusters, and a result that is still valid is kept.
//
// A decision tries the affinity terms of the placement in order until one succeeds. For each term, filters drop
// clusters that are not eligible, scorers rank the others, estimators return their free capacity, the spread
// constraints select clusters, and the replicas are divided among the selected clusters.
package schedule
