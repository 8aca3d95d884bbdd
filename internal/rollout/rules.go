package rollout

// rules turns single rules of the planner off. The zero value is the planner; tests use the others to show that they notice.
type rules struct {
	// neverClose keeps the envelope of a cluster that has come to rest.
	neverClose bool
	// trustObserved tightens an envelope as soon as a narrower command was observed.
	trustObserved bool
	// forgetUndelivered counts only what was observed, not what was commanded.
	forgetUndelivered bool
	// forgetUnreachable does not count clusters that do not answer.
	forgetUnreachable bool
	// together changes replicas and revision by one command.
	together bool
	// anyPods, anyAvailable and anyUpdated leave out one of the three checks.
	anyPods, anyAvailable, anyUpdated bool
	// perCluster gives the bounds to every cluster, as a federation without a planner does.
	perCluster bool
	// anyAge uses observations that are older than those of an earlier plan.
	anyAge bool
	// freeIfDown counts whatever is unavailable as granted already.
	freeIfDown bool
	// strictSums refuses what does not loosen anything while a bound is broken.
	strictSums bool
}
