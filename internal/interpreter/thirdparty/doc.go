// Package thirdparty interprets common kinds that Kubernetes does not define: those of Argo, Flink, Flux, Kubeflow,
// Kyverno, OpenKruise, Ray, Spark and Volcano.
package thirdparty
