package stages

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

var zero = time.Unix(1000, 0)

func after(minutes int) time.Time { return zero.Add(time.Duration(minutes) * time.Minute) }

func never(string) bool { return false }

// TestDecide shows single decisions.
func TestDecide(t *testing.T) {
	one := intstr.FromInt32(1)
	half := intstr.FromString("50%")
	canary := Stage{Name: "canary", Clusters: []string{"a"}, Soak: 10 * time.Minute}
	rest := Stage{Name: "rest", Clusters: []string{"b", "c", "d"}, AtOnce: &half}
	begun := func(name string) Cluster { return Cluster{Name: name, Began: zero, Progressed: zero} }
	done := func(name string) Cluster { return Cluster{Name: name, Began: zero, Progressed: zero, Done: after(1)} }
	fresh := func(name string) Cluster { return Cluster{Name: name} }
	for _, test := range []struct {
		name     string
		policy   Policy
		clusters []Cluster
		now      time.Time
		want     string
	}{{
		name: "without stages all begin", clusters: []Cluster{fresh("a"), fresh("b")}, now: zero,
		want: "map[] stage 0 Continue",
	}, {
		name: "the first stage begins", policy: Policy{Stages: []Stage{canary, rest}}, clusters: []Cluster{fresh("a"), fresh("b")}, now: zero,
		want: "map[b:waits for stage canary] stage 0 Continue",
	}, {
		name: "it soaks", policy: Policy{Stages: []Stage{canary, rest}}, clusters: []Cluster{done("a"), fresh("b")}, now: after(5),
		want: "map[b:waits for stage canary] stage 0 Continue next 11m",
	}, {
		name: "half of the second begin", policy: Policy{Stages: []Stage{canary, rest}}, clusters: []Cluster{done("a"), fresh("b"), begun("c"), fresh("d")}, now: after(11),
		want: "map[d:waits for other clusters of stage rest] stage 1 Continue",
	}, {
		name: "clusters of no stage are last", policy: Policy{Stages: []Stage{{Name: "first", Clusters: []string{"b"}}}}, clusters: []Cluster{fresh("a"), begun("b")}, now: zero,
		want: "map[a:waits for stage first] stage 0 Continue",
	}, {
		name: "approval", policy: Policy{Stages: []Stage{{Name: "first", Clusters: []string{"a"}, Approval: true}}}, clusters: []Cluster{fresh("a")}, now: zero,
		want: "map[a:waits until stage first is approved] stage 0 Continue awaits first",
	}, {
		name: "no progress", policy: Policy{Stages: []Stage{canary}, Stalled: 10 * time.Minute}, clusters: []Cluster{begun("a"), fresh("b")}, now: after(10),
		want: "map[b:waits for stage canary] stage 0 Pause: the rollout failed in 1 clusters: a has made no progress for 10m0s",
	}, {
		name: "not yet", policy: Policy{Stages: []Stage{canary}, Stalled: 10 * time.Minute}, clusters: []Cluster{begun("a"), fresh("b")}, now: after(9),
		want: "map[b:waits for stage canary] stage 0 Continue next 10m",
	}, {
		name: "one failure is allowed", policy: Policy{Stalled: 10 * time.Minute, Failures: 1}, clusters: []Cluster{begun("a"), fresh("b")}, now: after(10),
		want: "map[] stage 0 Continue",
	}, {
		name: "unavailable after it was done", policy: Policy{Unavailable: time.Minute, RollBack: true},
		clusters: []Cluster{{Name: "a", Began: zero, Done: after(1), Unavailable: after(5)}, fresh("b")}, now: after(6),
		want: "map[b:the rollout failed in 1 clusters: a has had unavailable pods for 1m0s] stage 0 RollBack: the rollout failed in 1 clusters: a has had unavailable pods for 1m0s",
	}, {
		name: "unavailable before it began", policy: Policy{Unavailable: time.Minute}, clusters: []Cluster{{Name: "a", Began: after(10), Unavailable: zero}}, now: after(10),
		want: "map[] stage 0 Continue next 11m",
	}, {
		name: "one at once", policy: Policy{Stages: []Stage{{Name: "all", Clusters: []string{"a", "b"}, AtOnce: &one}}}, clusters: []Cluster{fresh("b"), fresh("a")}, now: zero,
		want: "map[a:waits for other clusters of stage all] stage 0 Continue",
	}, {
		name: "a stage without clusters is passed", policy: Policy{Stages: []Stage{{Name: "empty", Approval: true, Soak: time.Hour}, canary}}, clusters: []Cluster{fresh("a")}, now: zero,
		want: "map[] stage 1 Continue",
	}} {
		t.Run(test.name, func(t *testing.T) {
			r := Decide(test.policy, test.clusters, never, test.now)
			got := fmt.Sprintf("%v stage %d %s", r.Hold, r.Stage, []string{"Continue", "Pause", "RollBack"}[r.Verdict])
			if r.Reason != "" {
				got += ": " + r.Reason
			}
			if r.Awaits != "" {
				got += " awaits " + r.Awaits
			}
			if !r.Next.IsZero() {
				got += fmt.Sprintf(" next %dm", int(r.Next.Sub(zero).Minutes()))
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestStagesInOrder runs rollouts in which clusters begin when they may: stages do not overlap, soak, and are not wider than they may be.
// All end.
func TestStagesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var policy Policy
		var clusters []Cluster
		stageOf := map[string]int{}
		for i := range rapid.IntRange(0, 3).Draw(t, "stages") {
			n := intstr.FromInt32(int32(rapid.IntRange(1, 3).Draw(t, "at once")))
			stage := Stage{Name: fmt.Sprint(i), AtOnce: &n, Soak: time.Duration(rapid.IntRange(0, 3).Draw(t, "soak")) * time.Minute, Approval: rapid.Bool().Draw(t, "approval")}
			for range rapid.IntRange(0, 4).Draw(t, "clusters") {
				name := fmt.Sprint(i, "-", len(clusters))
				stage.Clusters, clusters, stageOf[name] = append(stage.Clusters, name), append(clusters, Cluster{Name: name}), i
			}
			policy.Stages = append(policy.Stages, stage)
		}
		clusters = rapid.Permutation(clusters).Draw(t, "order")
		approved := map[string]bool{}
		for minute := range 200 {
			now := after(minute)
			result := Decide(policy, clusters, func(stage string) bool { return approved[stage] }, now)
			running := map[int]int{}
			for i := range clusters {
				c := &clusters[i]
				switch {
				case !c.Began.IsZero() && c.Done.IsZero() && rapid.Bool().Draw(t, "done"):
					c.Done = now
				case c.Began.IsZero() && result.Hold[c.Name] == "":
					c.Began = now
					for _, other := range clusters {
						if stageOf[other.Name] < stageOf[c.Name] {
							soak := policy.Stages[stageOf[other.Name]].Soak
							if other.Done.IsZero() || now.Before(other.Done.Add(soak)) {
								t.Fatalf("%s begins before %s has been done for %s", c.Name, other.Name, soak)
							}
						}
					}
					if s := policy.Stages[stageOf[c.Name]]; s.Approval && !approved[s.Name] {
						t.Fatalf("%s begins without approval", c.Name)
					}
				}
			}
			for _, c := range clusters {
				if !c.Began.IsZero() && c.Done.IsZero() {
					running[stageOf[c.Name]]++
				}
			}
			for stage, n := range running {
				if n > policy.Stages[stage].AtOnce.IntValue() {
					t.Fatalf("%d clusters of stage %d at once", n, stage)
				}
			}
			if result.Awaits != "" && rapid.Bool().Draw(t, "approve") {
				approved[result.Awaits] = true
			}
			if !slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Done.IsZero() }) {
				return
			}
		}
		t.Fatalf("it does not end: %+v", clusters)
	})
}
