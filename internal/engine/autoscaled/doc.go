// Package autoscaled leaves the replicas of workloads that HorizontalPodAutoscalers scale in the members to those.
//
// The Marker labels the target of each propagated HorizontalPodAutoscaler with retain-replicas: the engine then writes other changes of the
// template to the members, but not its replicas. The Syncer writes the sum of the replicas in the members to the template, so that a member
// that joins gets a share of what runs, and so that users see it.
package autoscaled
