// Package stages decides which clusters may begin a rollout, by stages that a user has defined. It is a pure function of the stages, the
// state of the clusters and the time.
//
// A stage is a limit on top of the bounds of the rollout, never a way around them: a cluster that may begin still needs the planner's
// command. Clusters that have begun are not stopped by a stage, only by a failure.
package stages
