package rollout

import "testing"

// TestModelNoticesBrokenRules breaks one rule at a time, of the planner or of the protocol around it, and sees the model fail.
func TestModelNoticesBrokenRules(t *testing.T) {
	for _, test := range []struct {
		name   string
		rules  rules
		faults faults
	}{
		{name: "every cluster gets all bounds", rules: rules{perCluster: true}},
		{name: "the number of pods is not checked", rules: rules{anyPods: true}},
		{name: "the number of available pods is not checked", rules: rules{anyAvailable: true}},
		{name: "the number of updated pods is not checked", rules: rules{anyUpdated: true}, faults: faults{partitioned: true}},
		{name: "a cluster at rest keeps its envelope", rules: rules{neverClose: true}},
		{name: "a narrower command tightens when it is observed", rules: rules{trustObserved: true}},
		{name: "commands that were not observed are forgotten", rules: rules{forgetUndelivered: true}},
		{name: "replicas and revision change together", rules: rules{together: true}},
		{name: "clusters that do not answer are forgotten", rules: rules{forgetUnreachable: true}},
		{name: "outdated observations count", rules: rules{anyAge: true}},
		{name: "what is unavailable is taken for granted", rules: rules{freeIfDown: true}},
		{name: "nothing goes while a bound is broken", rules: rules{strictSums: true}},
		{name: "two engines plan at once", faults: faults{noLedger: true}},
		{name: "an outdated engine replaces a newer command", faults: faults{anyOrder: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			const enough = 10_000 // most need a few runs; changing replicas and revision together is noticed after some 6000
			for seed := uint64(1); seed <= enough; seed++ {
				if failed := run(seed, test.rules, test.faults); failed != nil {
					t.Logf("seed %d, %s: %s", seed, failed.kind, failed.why)
					return
				}
			}
			t.Errorf("%d runs have not noticed it", enough)
		})
	}
}
