// Package autoscaler scales the templates of a cell by the metrics of their pods in all clusters.
//
// It acts on FederatedHPAs, and on HorizontalPodAutoscalers that no policy propagates. An autoscaler may be in another cell than its target. The engine that
// has the target decides: it has the binding, with the clusters and their shares, in its cache. So it watches the autoscalers of all cells, through the
// gateway, and the WorkloadMetrics of workloads that have one. Nothing is read for a decision, and one scale is written, through the gateway, whose guards
// hold as for every other user. While the target moves between cells nobody decides; then the engine of the new cell does, and starts like a new one:
// the present replicas are its first recommendation, so that a scale-down waits for its window again.
package autoscaler
