package controllermodel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestControllersKeepTheirBounds updates a workload in one cluster. In every order of steps each controller keeps to its own bounds, and
// finishes. The planner builds on that.
func TestControllersKeepTheirBounds(t *testing.T) {
	kinds := map[string]func() Workload{
		"Deployment":           func() Workload { return NewDeployment() },
		"StatefulSet":          func() Workload { return NewStatefulSet(false, false) },
		"parallel StatefulSet": func() Workload { return NewStatefulSet(true, true) },
		"CloneSet":             func() Workload { return NewCloneSet(false) },
		"CloneSet in place":    func() Workload { return NewCloneSet(true) },
	}
	for kind, create := range kinds {
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, 3))
			w, spec := create(), Spec{Replicas: 1 + random.IntN(6), Unavailable: 1, Revision: "v1"}
			w.Apply(spec)
			for range 20 {
				w.Run()
			}
			spec.Revision, spec.Surge, spec.Unavailable = "v2", random.IntN(3), random.IntN(spec.Replicas+1)
			switch kind {
			case "StatefulSet":
				spec.Surge, spec.Unavailable, spec.Partition = 0, 1, random.IntN(spec.Replicas)
			case "parallel StatefulSet":
				spec.Surge, spec.Unavailable, spec.Partition = 0, max(1, spec.Unavailable), random.IntN(spec.Replicas)
			case "CloneSet", "CloneSet in place":
				spec.Partition = random.IntN(spec.Replicas)
			}
			if spec.Surge+spec.Unavailable == 0 {
				spec.Surge = 1
			}
			w.Apply(spec)
			where := fmt.Sprintf("%s, seed %d, %+v", kind, seed, spec)
			for range 1000 {
				w.Step(random)
				c := w.Count()
				if c.Pods > spec.Replicas+spec.Surge || c.Available < spec.Replicas-spec.Unavailable || c.Revisions["v2"] > spec.Replicas-spec.Partition {
					t.Fatalf("%s: there are %+v", where, c)
				}
			}
			if c := w.Count(); c.Revisions["v2"] != spec.Replicas-spec.Partition || c.Available != spec.Replicas || c.Pods != spec.Replicas {
				t.Fatalf("%s: it ends with %+v", where, c)
			}
			if s := w.Status(); s.Remaining != 0 || s.Pods != spec.Replicas || s.ObservedGeneration != 2 {
				t.Fatalf("%s: it ends with the status %+v", where, s)
			}
		}
	}
}
