package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// TestDeploymentScalesInWithoutRegard shows why scaling in during an update has an envelope of its own: the stock controller removes pods
// from all ReplicaSets in proportion, and so fewer stay available than both the pods that were and the new bound.
func TestDeploymentScalesInWithoutRegard(t *testing.T) {
	d := controllermodel.NewDeployment()
	d.Apply(controllermodel.Spec{Replicas: 10, Surge: 1, Revision: "v1"})
	d.Run()
	d.Run()
	d.Apply(controllermodel.Spec{Replicas: 10, Unavailable: 4, Revision: controllermodel.Bad})
	for range 5 {
		d.Run()
	}
	if c := d.Count(); c.Available != 6 || c.Pods != 10 {
		t.Fatalf("in the middle of the update there are %+v", c)
	}
	d.Apply(controllermodel.Spec{Replicas: 8, Unavailable: 1, Revision: controllermodel.Bad})
	for range 5 {
		d.Run()
	}
	c := d.Count()
	if c.Available >= 6 {
		t.Errorf("the controller kept %d available", c.Available)
	}
	entry := updating("a", 10, 0, 4).Entry
	next := entry.loosen(Deployment, Command{Replicas: 8, Unavailable: 1, Revision: "v2"}, false, entry.Loosened)
	if next.Loosened.Available > c.Available {
		t.Errorf("the envelope has %d available, and the controller kept %d", next.Loosened.Available, c.Available)
	}
}

// TestStatefulSetWithGapLooksFinished shows why a StatefulSet is not scaled in during an update: a status can have as many pods as
// replicas while one of them is to go and another is missing.
func TestStatefulSetWithGapLooksFinished(t *testing.T) {
	s := controllermodel.NewStatefulSet(false, false)
	s.Apply(controllermodel.Spec{Replicas: 3, Revision: "v1"})
	for range 4 {
		s.Run()
	}
	s.Apply(controllermodel.Spec{Replicas: 3, Revision: "v2"})
	for s.Status().Updated != 2 || s.Status().Terminating+s.Status().Pods < 3 || s.Count().Pods != 2 {
		s.Run() // until the last pod, ordinal 0, is being replaced
	}
	s.Apply(controllermodel.Spec{Replicas: 2, Revision: "v2"})
	s.Run()
	status := s.Status()
	if status.Pods != 2 || status.Terminating != 0 || status.Remaining != 0 || s.Count().Pods != 3 {
		t.Fatalf("the status is %+v, and there are %+v", status, s.Count())
	}
	c := with(updating("a", 3, 0, 1), func(c *Cluster) { c.Share = 2 })
	decision := Plan(Input{Kind: StatefulSet, Bounds: Bounds{Replicas: 2, Unavailable: 1}, Revision: "v2", Clusters: []Cluster{c}}).Decisions[0]
	if decision.Entry.Command.Replicas != 3 {
		t.Errorf("it is scaled in: %+v", decision)
	}
}

// TestRevokedGrantIsStillCarriedOut shows why an observed command does not tighten an envelope: the ReplicaSets may still be carrying out
// what the controller decided by the one before.
func TestRevokedGrantIsStillCarriedOut(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 2))
		d := controllermodel.NewDeployment()
		d.Apply(controllermodel.Spec{Replicas: 4, Surge: 1, Revision: "v1"})
		for range 3 {
			d.Run()
		}
		d.Apply(controllermodel.Spec{Replicas: 4, Unavailable: 3, Revision: "v2"})
		for range 3 {
			d.Step(random)
		}
		d.Apply(controllermodel.Spec{Replicas: 4, Surge: 1, Revision: "v2"})
		for d.Status().ObservedGeneration < 3 {
			d.Step(random)
		}
		seen := d.Status()
		for range 20 {
			d.Step(random)
			if d.Count().Available < min(seen.Available, 4) {
				t.Logf("seed %d: the status with the narrower command has %d available, and then there are %d", seed, seen.Available, d.Count().Available)
				return
			}
		}
	}
	t.Error("it was never seen")
}

// Stages go on when a cluster has updated all pods that the partition does not keep.
func TestUpdated(t *testing.T) {
	partly := func(partition, updated int) Cluster {
		return with(at("b", 3, "v2"), func(c *Cluster) {
			c.Entry.Command.Partition, c.Observed.Updated, c.Entry.Revisions = partition, updated, []string{"v1", "v2"}
		})
	}
	for _, test := range []struct {
		name      string
		partition int
		cluster   Cluster
		want      bool
	}{
		{"all pods are updated", 0, at("b", 3, "v2"), true},
		{"it has not begun", 0, at("b", 3, "v1"), false},
		{"the partition keeps some", 4, partly(1, 2), true},
		{"the partition keeps all", 6, partly(3, 0), true},
		{"the partition is lower than what the cluster was told", 3, partly(1, 2), false},
		{"it has not begun, and the partition keeps all", 6, at("b", 3, "v1"), false},
		{"a pod is not available", 4, with(partly(1, 2), func(c *Cluster) { c.Observed.Available = 2 }), false},
		{"a pod remains to be updated", 4, with(partly(1, 2), func(c *Cluster) { c.Observed.Remaining = 1 }), false},
		{"it does not answer", 0, with(at("b", 3, "v2"), func(c *Cluster) { c.Unreachable = true }), false},
	} {
		in := Input{Kind: StatefulSet, Revision: "v2", Bounds: Bounds{Replicas: 6, Unavailable: 1, Partition: test.partition}, Clusters: []Cluster{at("a", 3, "v1"), test.cluster}}
		if got := in.Updated()[1]; got != test.want {
			t.Errorf("%s: got %t", test.name, got)
		}
	}
}

// A partition that stays through many updates does not let the ledger grow.
func TestRevisionsAreLimited(t *testing.T) {
	entry := at("a", 3, "v0").Entry
	for n := range 3 * mostRevisions {
		entry.Command.Revision = fmt.Sprintf("v%d", n)
		entry.remember()
		if err := entry.validate(); err != nil || len(entry.Revisions) > mostRevisions {
			t.Fatalf("after %d updates: %v, %v", n, entry.Revisions, err)
		}
	}
	if !entry.may("v0") {
		t.Error("a pod may still have the first revision")
	}
}
