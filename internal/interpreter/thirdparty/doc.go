// Package thirdparty knows kinds that many clusters have but Kubernetes does not define: those of Argo, Flink, Flux,
// Kubeflow, Kyverno, OpenKruise, Ray, Spark and Volcano.
package thirdparty
