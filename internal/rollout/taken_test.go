package rollout

import (
	"strings"
	"testing"
)

// TestTaken shows plans while a copy is out of the federation's hands.
func TestTaken(t *testing.T) {
	open := func(replicas int, newest bool, change func(*Cluster)) func(*Cluster) {
		return func(c *Cluster) {
			c.Taken = &Taken{Replicas: replicas, Newest: newest, Differs: true}
			if change != nil {
				change(c)
			}
		}
	}
	bounds := Bounds{Replicas: 9, Surge: 1, Unavailable: 1}
	for _, test := range []struct {
		name string
		in   Input
		want string
	}{{
		name: "it is not told anything, and the others have all of the bounds",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(at("a", 3, "v1"), open(3, false, nil)), at("b", 3, "v1"), at("c", 3, "v1")}},
		want: "a waits until the entry of the copy is closed; b 3 1/1 v2; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "in the middle of an update it keeps its part of the bounds",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(updating("a", 3, 0, 1), open(3, false, nil)), at("b", 3, "v1"), at("c", 3, "v1")}},
		want: "a waits until the entry of the copy is closed; b 3 1/0 v2; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "its pods count, also those that people have asked for and that are yet to come",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(at("a", 3, "v1"), open(5, false, nil)), at("b", 3, "v1"), at("c", 3, "v1")}},
		want: "a waits until the entry of the copy is closed; b 3 0/1 v2; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "and those that are missing",
		in: Input{Bounds: bounds, Clusters: []Cluster{
			with(at("a", 3, "v1"), open(0, false, func(c *Cluster) { c.Observed.Pods, c.Observed.Available, c.Observed.Updated = 0, 0, 0 })), at("b", 3, "v1"), at("c", 3, "v1"),
		}},
		want: "a waits until the entry of the copy is closed; b 3 1/0 v2; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "it is not scaled",
		in:   Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Revision: "v1", Clusters: []Cluster{with(at("a", 4, "v1"), open(4, false, func(c *Cluster) { c.Share = 2 })), at("b", 4, "v1")}},
		want: "a waits until the entry of the copy is closed; b done",
	}, {
		name: "it is told what it is already",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(at("a", 3, "v1"), open(3, true, nil)), at("b", 3, "v1"), at("c", 3, "v1")}},
		want: "a 3 0/1 v2; b 3 1/1 v2; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "also if it has been scaled",
		in: Input{Bounds: Bounds{Replicas: 11, Unavailable: 1}, Revision: "v1", Clusters: []Cluster{
			with(at("a", 3, "v1"), open(5, false, func(c *Cluster) { c.Share, c.Observed.Pods, c.Observed.Available = 5, 5, 5 })), at("b", 6, "v1"),
		}},
		want: "a 5 0/1 v1; b done",
	}, {
		name: "as long as it is as it was told to be, it goes on by itself",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(updating("a", 3, 0, 1), open(3, false, func(c *Cluster) { c.Taken.Differs = false })), at("b", 3, "v2"), at("c", 3, "v2")}},
		want: "a updates: 0 of 3 pods are updated, 2 are available; b done; c done",
	}, {
		name: "nothing waits for it if it has nothing to do",
		in:   Input{Bounds: bounds, Clusters: []Cluster{with(at("a", 3, "v2"), open(3, false, nil)), at("b", 3, "v2"), at("c", 3, "v2")}},
		want: "a done; b done; c done",
	}} {
		t.Run(test.name, func(t *testing.T) {
			if test.in.Revision == "" {
				test.in.Revision = "v2"
			}
			result := Plan(test.in)
			if got := describe(result); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			for i := range result.Decisions {
				d := &result.Decisions[i]
				if waits := strings.HasPrefix(d.Reason, "waits until the entry"); waits != d.Blocked && test.in.Clusters[i].Taken != nil {
					t.Errorf("%s is blocked: %t, %s", d.Name, d.Blocked, d.Reason)
				}
			}
		})
	}

	// A stage waits for it, as long as it differs.
	for _, differs := range []bool{true, false} {
		in := Input{Bounds: bounds, Revision: "v2", Clusters: []Cluster{with(at("a", 3, "v2"), func(c *Cluster) { c.Taken = &Taken{Replicas: 3, Differs: differs} })}}
		if in.Updated()[0] == differs {
			t.Errorf("it differs: %t, and is updated: %t", differs, in.Updated()[0])
		}
	}
}
