// Package stages decides which clusters of a workload may begin an update now. Stages limit when a cluster begins; the planner of package
// rollout still decides how far it may go. It is a pure function of what is known and of the time.
//
// What has to be remembered is a [Record], an annotation of the binding: which update it is of, when stages were finished, and whether the
// update has failed. Everything else follows from the clusters. Approvals are an annotation of their own, because people write them.
package stages
