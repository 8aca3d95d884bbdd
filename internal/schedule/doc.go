// Package schedule decides which member clusters hold a template and how its replicas are shared among them.
//
// It is a pure function of a binding and the clusters: no clients, no clock. The same input always gives the same
// answer, whatever the order of the clusters, and an answer that is still good is given again.
//
// A decision goes through the same steps for each group of the placement's affinities until one holds the template:
// filters drop clusters that may not hold it, scorers rank the others, an estimator tells how many more replicas each
// has room for, the spread constraints select among them, and the replicas are divided among the selected.
package schedule
