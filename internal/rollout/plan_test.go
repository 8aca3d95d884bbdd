package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// at returns a cluster at rest with all pods available.
func at(name string, replicas int, revision string) Cluster {
	return Cluster{
		Name: name, Share: replicas,
		Entry: Entry{
			Seq: 1, Command: Command{Replicas: replicas, Unavailable: 1, Revision: revision}, Revisions: []string{revision},
			Loosened: Envelope{Pods: replicas, Available: replicas, Updated: replicas},
		},
		Observed: &Observation{Seq: 1, Current: true, Pods: replicas, Available: replicas, Updated: replicas},
	}
}

// updating returns a cluster in the middle of an update from v1 to v2.
func updating(name string, replicas, surge, unavailable int) Cluster {
	c := at(name, replicas, "v2")
	c.Entry.Command.Surge, c.Entry.Command.Unavailable = surge, unavailable
	c.Entry.Revisions = []string{"v1", "v2"}
	c.Entry.Loosened = Envelope{Pods: replicas + surge, Available: replicas - unavailable, Updated: replicas}
	c.Observed.Pods, c.Observed.Available, c.Observed.Updated, c.Observed.Remaining = replicas+surge, replicas-unavailable, surge, replicas
	return c
}

func with(c Cluster, change func(*Cluster)) Cluster {
	change(&c)
	return c
}

// TestPlan shows single plans.
func TestPlan(t *testing.T) {
	available := func(n int) func(*Cluster) { return func(c *Cluster) { c.Observed.Available = n } }
	share := func(n int) func(*Cluster) { return func(c *Cluster) { c.Share = n } }
	for _, test := range []struct {
		name string
		in   Input
		want string // per cluster: replicas, surge/unavailable, partition if any, revision, and the reason of clusters without a command
	}{{
		name: "of five clusters one begins: one pod may be unavailable in all",
		in:   Input{Bounds: Bounds{Replicas: 15, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), at("b", 3, "v1"), at("c", 3, "v1"), at("d", 3, "v1"), at("e", 3, "v1")}},
		want: "a 3 0/1 v2; b waits for other clusters: maxUnavailable is used up; c waits for other clusters: maxUnavailable is used up; d waits for other clusters: maxUnavailable is used up; e waits for other clusters: maxUnavailable is used up",
	}, {
		name: "25 % of nine are divided",
		in:   Input{Bounds: Bounds{Replicas: 9, Surge: 3, Unavailable: 2}, Clusters: []Cluster{at("a", 3, "v1"), at("b", 3, "v1"), at("c", 3, "v1")}},
		want: "a 3 1/1 v2; b 3 1/1 v2; c 3 1/0 v2",
	}, {
		name: "the last cluster gets what the others leave",
		in:   Input{Bounds: Bounds{Replicas: 9, Surge: 1}, Clusters: []Cluster{at("a", 3, "v2"), updating("b", 3, 1, 0), at("c", 3, "v1")}},
		want: "a done; b updates: 1 of 3 pods are updated, 3 are available; c waits for other clusters: maxSurge and maxUnavailable are used up",
	}, {
		name: "a pod that failed uses the budget up; its own cluster may begin with it",
		in:   Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), available(2))}},
		want: "a waits for other clusters: maxUnavailable is used up; b 3 0/1 v2",
	}, {
		name: "if too many pods failed, nothing begins",
		in:   Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), available(1))}},
		want: "a waits for other clusters: maxUnavailable is used up; b waits for other clusters: maxUnavailable is used up",
	}, {
		name: "unless they fail for long",
		in: Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), func(c *Cluster) {
			c.Observed.Available, c.Failing = 1, true
		})}},
		want: "a waits for other clusters: maxUnavailable is used up; b 3 0/2 v2",
	}, {
		name: "a cluster that does not answer counts as unavailable",
		in:   Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), func(c *Cluster) { c.Unreachable = true })}},
		want: "a waits for other clusters: maxUnavailable is used up; b waits until the cluster answers",
	}, {
		name: "or not, if the policy says so",
		in: Input{
			Bounds: Bounds{Replicas: 6, Unavailable: 1}, KeepAvailable: true,
			Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), func(c *Cluster) { c.Unreachable = true })},
		},
		want: "a 3 0/1 v2; b waits until the cluster answers",
	}, {
		name: "the replicas of a lost cluster are made up for at once, in the middle of an update that is stuck",
		in: Input{Bounds: Bounds{Replicas: 6, Surge: 1}, Clusters: []Cluster{
			with(updating("a", 3, 1, 0), share(6)), with(at("b", 3, "v1"), func(c *Cluster) { c.Share, c.Lost, c.Unreachable = 0, true, true }),
		}},
		want: "a 6 1/0 v2; b given up: its replicas were moved to other clusters",
	}, {
		name: "a move needs no budget but that of the bounds",
		in:   Input{Bounds: Bounds{Replicas: 6, Unavailable: 2}, Revision: "v1", Clusters: []Cluster{with(at("a", 4, "v1"), share(0)), with(at("b", 2, "v1"), share(6))}},
		want: "a 2 0/1 v1; b waits until there is room for more pods",
	}, {
		name: "an emptied cluster may be released",
		in:   Input{Bounds: Bounds{Replicas: 2, Unavailable: 1}, Clusters: []Cluster{at("a", 2, "v2"), at("b", 0, "v1")}},
		want: "a done; b done",
	}, {
		name: "an envelope is not used up while too few pods may be available",
		in: Input{Bounds: Bounds{Replicas: 9, Unavailable: 1}, Clusters: []Cluster{with(updating("a", 5, 0, 1), func(c *Cluster) {
			// It was scaled out from 3 replicas while it was paused, because a cluster was given up.
			c.Entry.Command.Paused, c.Entry.Loosened.Available, c.Observed.Available, c.Observed.Updated, c.Observed.Remaining = true, 2, 5, 1, 4
		}), at("b", 4, "v1")}},
		want: "a 5 0/1 v2; b waits for other clusters: maxUnavailable is used up",
	}, {
		name: "a chosen cluster has a copy even without replicas",
		in:   Input{Bounds: Bounds{Replicas: 2, Unavailable: 1}, Clusters: []Cluster{at("a", 2, "v2"), {Name: "b", Chosen: true}}},
		want: "a done; b 0 0/1 v2",
	}, {
		name: "which is updated, too",
		in:   Input{Bounds: Bounds{Replicas: 2, Unavailable: 1}, Clusters: []Cluster{at("a", 2, "v2"), with(at("b", 0, "v1"), func(c *Cluster) { c.Chosen = true })}},
		want: "a done; b 0 0/1 v2",
	}, {
		name: "a paused rollout stops what has begun, and begins nothing",
		in:   Input{Bounds: Bounds{Replicas: 6, Surge: 2}, Paused: true, Clusters: []Cluster{updating("a", 3, 1, 0), at("b", 3, "v1")}},
		want: "a 3 1/0 v2 paused; b the rollout is paused",
	}, {
		name: "a paused rollout is scaled",
		in:   Input{Bounds: Bounds{Replicas: 7, Surge: 2}, Paused: true, Clusters: []Cluster{at("a", 3, "v2"), with(at("b", 3, "v1"), share(4))}},
		want: "a done; b 4 0/1 v1",
	}, {
		name: "a stage holds a cluster back",
		in:   Input{Bounds: Bounds{Replicas: 6, Surge: 2}, Clusters: []Cluster{at("a", 3, "v1"), with(at("b", 3, "v1"), func(c *Cluster) { c.Hold = "waits for stage 1" })}},
		want: "a 3 2/0 v2; b waits for stage 1",
	}, {
		name: "undo in the middle takes what is granted already",
		in:   Input{Bounds: Bounds{Replicas: 6, Surge: 1}, Revision: "v1", Clusters: []Cluster{updating("a", 3, 1, 0), at("b", 3, "v1")}},
		want: "a 3 1/0 v1; b done",
	}, {
		name: "ordinals below the partition stay",
		in:   Input{Kind: StatefulSet, Bounds: Bounds{Replicas: 6, Unavailable: 2, Partition: 4}, Clusters: []Cluster{at("a", 3, "v1"), at("b", 3, "v1")}},
		want: "a 3 0/1 p3 v2; b 3 0/2 p1 v2",
	}, {
		name: "a number of pods stays",
		in:   Input{Kind: CloneSet, Bounds: Bounds{Replicas: 6, Unavailable: 2, Partition: 4}, Clusters: []Cluster{at("a", 3, "v1"), at("b", 3, "v1")}},
		want: "a 3 0/2 p1 v2; b 3 0/1 p3 v2",
	}, {
		name: "a command that was not observed is waited for",
		in:   Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Clusters: []Cluster{with(at("a", 3, "v1"), func(c *Cluster) { c.Entry.Seq = 2 })}},
		want: "a waits until the cluster has seen command 2",
	}, {
		name: "a command that the ledger does not know stops everything",
		in:   Input{Bounds: Bounds{Replicas: 6, Surge: 1}, Clusters: []Cluster{with(at("a", 3, "v1"), func(c *Cluster) { c.Observed.Seq = 2 }), at("b", 3, "v1")}},
		want: "a waits until command 2 of cluster a, which the ledger does not have, is adopted; b waits until command 2 of cluster a, which the ledger does not have, is adopted",
	}, {
		name: "a report that is older than one of an earlier plan does not count: its pods may be gone",
		in: Input{Bounds: Bounds{Replicas: 6, Unavailable: 1}, Clusters: []Cluster{
			with(updating("a", 3, 0, 1), func(c *Cluster) { c.Entry.Seen, c.Observed.Version = 9, 8 }), at("b", 3, "v1"),
		}},
		want: "a waits for a new report of the cluster; b waits for other clusters: maxUnavailable is used up",
	}, {
		name: "a command that is refused is replaced",
		in: Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Revision: "v3", Clusters: []Cluster{
			with(updating("a", 3, 1, 0), func(c *Cluster) { c.Entry.Seq, c.Refused = 2, true }),
		}},
		want: "a 3 1/0 v3",
	}, {
		name: "a cluster that refuses a revision is scaled with the one it has",
		in: Input{Bounds: Bounds{Replicas: 4, Surge: 1}, Clusters: []Cluster{
			with(updating("a", 3, 1, 0), func(c *Cluster) {
				c.Entry.Seq, c.Refused, c.Share = 2, true, 4
				c.Observed = &Observation{Seq: 1, Revision: "v1", Current: true, Pods: 3, Available: 3, Updated: 3}
			}),
		}},
		want: "a 4 1/0 v1",
	}, {
		name: "a StatefulSet that refuses a command, and has no room for the next one, keeps its pods: its envelope would stay in the way of others",
		in: Input{Kind: StatefulSet, Bounds: Bounds{Replicas: 4, Unavailable: 1}, Revision: "v3", Clusters: []Cluster{
			with(at("a", 1, "v1"), func(c *Cluster) { // it was scaled in from 2
				c.Entry.Seq, c.Refused = 3, true
				c.Entry.Command.Revision, c.Entry.Command.Partition = "v2", 1
				c.Entry.Loosened, c.Entry.Revisions = Envelope{Pods: 2, Available: 1}, []string{"v1", "v2"}
				c.Observed.Seq = 2
			}), at("b", 2, "v1"), {Name: "c", Share: 1},
		}},
		want: "a 1 0/1 p1 v3; b waits for other clusters: maxUnavailable is used up; c waits until there is room for more pods",
	}, {
		name: "a new cluster gets the new revision",
		in:   Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Previous: "v1", Clusters: []Cluster{{Name: "a", Share: 3}}},
		want: "a 3 0/1 v2",
	}, {
		name: "unless the rollout is paused",
		in:   Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Previous: "v1", Paused: true, Clusters: []Cluster{{Name: "a", Share: 3}}},
		want: "a 3 0/1 v1",
	}, {
		name: "a large cluster gets more when the others are done",
		in:   Input{Bounds: Bounds{Replicas: 43, Surge: 4}, Clusters: []Cluster{updating("a", 40, 1, 0), at("b", 3, "v2")}},
		want: "a 40 4/0 v2; b done",
	}} {
		t.Run(test.name, func(t *testing.T) {
			if test.in.Revision == "" {
				test.in.Revision = "v2"
			}
			result := Plan(test.in)
			if got := describe(result); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func describe(result Result) string {
	var parts []string
	for _, d := range result.Decisions {
		text := d.Name + " " + d.Reason
		if c := d.Entry.Command; d.Commanded {
			text = fmt.Sprintf("%s %d %d/%d", d.Name, c.Replicas, c.Surge, c.Unavailable)
			if c.Partition > 0 {
				text += fmt.Sprintf(" p%d", c.Partition)
			}
			if text += " " + c.Revision; c.Paused {
				text += " paused"
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// TestScalingOutAddsUpdatedPods checks that a partition is not counted on where all pods are updated: new pods are, too.
func TestScalingOutAddsUpdatedPods(t *testing.T) {
	c := with(at("a", 4, "v2"), func(c *Cluster) { c.Entry.Command.Partition, c.Share = 1, 5 })
	result := Plan(Input{Kind: CloneSet, Bounds: Bounds{Replicas: 5, Unavailable: 1, Partition: 1}, Revision: "v2", Clusters: []Cluster{c}})
	if d := result.Decisions[0]; d.Entry.Command.Replicas != 5 || result.Sums.Updated != 5 {
		t.Errorf("%+v, %+v", d, result.Sums)
	}
}

// TestCreatingCountsAsUpdated checks that a partition is not counted on where there is no copy, because the first command was refused: all pods get the newest revision.
func TestCreatingCountsAsUpdated(t *testing.T) {
	refused := with(at("a", 3, "v1"), func(c *Cluster) { c.Refused, c.Observed, c.Entry.Loosened.Available = true, &Observation{}, 0 })
	result := Plan(Input{Kind: CloneSet, Bounds: Bounds{Replicas: 3, Unavailable: 1, Partition: 2}, Revision: "v2", Clusters: []Cluster{refused}})
	if d := result.Decisions[0]; !d.Commanded || d.Entry.Command.Revision != "v2" || result.Sums.Updated != 3 {
		t.Errorf("%+v, %+v", d, result.Sums)
	}
}

// TestPlanIsPure checks that a plan does not change its input, and that the same input gives the same plan.
func TestPlanIsPure(t *testing.T) {
	in := Input{Bounds: Bounds{Replicas: 9, Surge: 3, Unavailable: 2}, Revision: "v2", Clusters: []Cluster{at("a", 3, "v1"), updating("b", 3, 1, 0), at("c", 3, "v1")}}
	before := fmt.Sprintf("%+v %+v", in, *in.Clusters[1].Observed)
	first := fmt.Sprintf("%+v", Plan(in))
	if second := fmt.Sprintf("%+v", Plan(in)); first != second {
		t.Errorf("first %s\nthen %s", first, second)
	}
	if after := fmt.Sprintf("%+v %+v", in, *in.Clusters[1].Observed); after != before {
		t.Errorf("was %s\nis %s", before, after)
	}
}

// TestAdopt checks the envelope of workloads that exist already.
func TestAdopt(t *testing.T) {
	command := Command{Replicas: 4, Surge: 2, Unavailable: 1, Revision: "v2"}
	settled := Adopt(Deployment, command, Observation{Version: 7, Pods: 4, Available: 3, Updated: 4}, "v1")
	if settled.Seq != 1 || settled.Seen != 7 || settled.Loosened != (Envelope{4, 4, 4}) || settled.mixed() {
		t.Errorf("a settled one: %+v", settled)
	}
	rolling := Adopt(Deployment, command, Observation{Seq: 5, Pods: 5, Available: 3, Updated: 2, Remaining: 3}, "v1")
	if rolling.Seq != 5 || rolling.Loosened != (Envelope{6, 3, 4}) || !rolling.may("v1") || !rolling.may("v2") {
		t.Errorf("one in the middle: %+v", rolling)
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"begin", "middle", "move"} {
		b.Run(name, func(b *testing.B) {
			in := Input{Bounds: Bounds{Replicas: 10000, Surge: 250, Unavailable: 250}, Revision: "v2"}
			for i := range 500 {
				c := at(fmt.Sprintf("member-%03d", i), 20, "v1")
				switch {
				case name == "middle" && i%2 == 0:
					c = updating(c.Name, 20, 1, 0)
				case name == "move":
					c.Share = 10 + i%2*20
				}
				in.Clusters = append(in.Clusters, c)
			}
			for b.Loop() {
				Plan(in)
			}
		})
	}
}

// A cluster is blocked if it waits for something that it cannot bring about by itself.
func TestBlocked(t *testing.T) {
	blocked := func(in Input) (names []string) {
		in.Revision = "v2"
		for _, d := range Plan(in).Decisions {
			if d.Blocked {
				names = append(names, d.Name+" "+d.Reason)
			}
		}
		return names
	}
	for name, test := range map[string]struct {
		in   Input
		want []string
	}{
		"one begins, one is done, one waits for room": {
			Input{Bounds: Bounds{Replicas: 9, Unavailable: 1}, Clusters: []Cluster{at("a", 3, "v1"), at("b", 3, "v2"), at("c", 3, "v1")}},
			[]string{"c waits for other clusters: maxUnavailable is used up"},
		},
		"paused": {
			Input{Bounds: Bounds{Replicas: 6, Surge: 2}, Paused: true, Clusters: []Cluster{updating("a", 3, 1, 0), at("b", 3, "v1")}},
			[]string{"b the rollout is paused"},
		},
		"a command is on its way": {
			Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Clusters: []Cluster{with(at("a", 3, "v1"), func(c *Cluster) { c.Entry.Seq = 2 })}}, nil,
		},
		"a cluster does not answer": {
			Input{Bounds: Bounds{Replicas: 3, Surge: 1}, Clusters: []Cluster{with(at("a", 3, "v1"), func(c *Cluster) { c.Unreachable = true })}},
			[]string{"a waits until the cluster answers"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := blocked(test.in); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
