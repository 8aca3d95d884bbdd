// Package autoscale decides how many replicas a workload should have, from what its pods use in all clusters.
//
// It gives the result that one HorizontalPodAutoscaler would give over the pods of all clusters. Pods are not needed
// for that: each cluster computes a few Sums per metric from its own pods, and Sums of several clusters are added. The
// rest is a pure function: no clients, no clock, and only a History is kept between decisions.
//
// Three things differ from the controller of Kubernetes. Samples of pods that no longer exist are left out. Numbers
// that do not fit are bounded, and do not wrap around. And there can be pods about which nothing is known, those of a
// cluster that does not report: they count as pods without a sample, so that they never cause a scale-down.
package autoscale
