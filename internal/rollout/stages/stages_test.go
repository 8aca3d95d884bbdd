package stages

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var start = time.Unix(1_000_000, 0)

// TestDecide has one case per rule.
func TestDecide(t *testing.T) {
	canaryFirst := Policy{Stages: []Stage{{Name: "canary", Soak: time.Minute}, {Name: "rest", AtOnce: 1}}}
	clusters := func(a, b, c Cluster) []Cluster {
		a.Name, b.Name, c.Name = "a", "b", "c"
		b.Stage, c.Stage = 1, 1
		return []Cluster{a, b, c}
	}
	updating, done := Cluster{Begun: true}, Cluster{Begun: true, Done: true}
	for _, test := range []struct {
		name  string
		in    Input
		holds []string
		want  Result
	}{
		{
			name:  "the first stage begins",
			in:    Input{Policy: canaryFirst, Clusters: clusters(Cluster{}, Cluster{}, Cluster{})},
			holds: []string{"", "waits for stage canary: 0 of 1 clusters are updated", "waits for stage canary: 0 of 1 clusters are updated"},
		},
		{
			name:  "a finished stage is observed",
			in:    Input{Policy: canaryFirst, Clusters: clusters(done, Cluster{}, Cluster{})},
			holds: []string{"", "stage canary is observed until 1970-01-12T13:47:40Z", "stage canary is observed until 1970-01-12T13:47:40Z"},
			want:  Result{Record: Record{Finished: map[string]int64{"canary": start.Unix()}}, After: time.Minute},
		},
		{
			name:  "then the next one begins, one cluster at a time",
			in:    Input{Policy: canaryFirst, Clusters: clusters(done, Cluster{}, Cluster{}), Record: Record{Update: "v2", Finished: map[string]int64{"canary": start.Unix() - 60}}},
			holds: []string{"", "", "waits for other clusters of stage rest: maxClusters is 1"},
			want:  Result{Record: Record{Finished: map[string]int64{"canary": start.Unix() - 60}}},
		},
		{
			name:  "a stage whose pods fail while it is observed is observed again",
			in:    Input{Policy: canaryFirst, Clusters: clusters(updating, Cluster{}, Cluster{}), Record: Record{Update: "v2", Finished: map[string]int64{"canary": start.Unix() - 30}}},
			holds: []string{"", "waits for stage canary: 0 of 1 clusters are updated", "waits for stage canary: 0 of 1 clusters are updated"},
		},
		{
			name:  "the record of another update does not count",
			in:    Input{Policy: canaryFirst, Clusters: clusters(Cluster{}, done, done), Record: Record{Update: "v1", Finished: map[string]int64{"canary": 1}, Failed: []string{"a"}}},
			holds: []string{"", "", ""},
		},
		{
			name:  "a time in the future does not count: the clock was set back",
			in:    Input{Policy: canaryFirst, Clusters: clusters(done, Cluster{}, done), Record: Record{Update: "v2", Finished: map[string]int64{"canary": start.Unix() + 3600}}},
			holds: []string{"", "stage canary is observed until 1970-01-12T13:47:40Z", ""},
			want:  Result{Record: Record{Finished: map[string]int64{"canary": start.Unix()}}, After: time.Minute},
		},
		{
			name:  "an approval is waited for",
			in:    Input{Policy: Policy{Stages: []Stage{{Name: "canary"}, {Name: "rest", Approval: true}}}, Clusters: clusters(done, Cluster{}, Cluster{}), Approval: Approval{Update: "v1", Stages: []string{"rest"}}},
			holds: []string{"", "stage rest waits for approval", "stage rest waits for approval"},
			want:  Result{Record: Record{Waiting: "rest"}},
		},
		{
			name:  "an approved stage begins",
			in:    Input{Policy: Policy{Stages: []Stage{{Name: "canary"}, {Name: "rest", Approval: true}}}, Clusters: clusters(done, Cluster{}, Cluster{}), Approval: Approval{Update: "v2", Stages: []string{"rest"}}},
			holds: []string{"", "", ""},
		},
		{
			name:  "a stage without clusters is passed, also if it would have to be approved",
			in:    Input{Policy: Policy{Stages: []Stage{{Name: "none", Approval: true, Soak: time.Hour}, {Name: "rest"}}}, Clusters: clusters(Cluster{Stage: 1}, Cluster{}, Cluster{})},
			holds: []string{"", "", ""},
		},
		{
			name:  "a cluster that fails ends the update",
			in:    Input{Policy: canaryFirst, Clusters: clusters(Cluster{Begun: true, Failed: true}, Cluster{}, Cluster{Failed: true})},
			holds: []string{"", "waits for stage canary: 0 of 1 clusters are updated", "waits for stage canary: 0 of 1 clusters are updated"},
			want:  Result{Failure: "the update has failed in a", Record: Record{Failed: []string{"a"}}},
		},
		{
			name:  "it stays failed when the cluster recovers",
			in:    Input{Policy: canaryFirst, Clusters: clusters(done, done, done), Record: Record{Update: "v2", Failed: []string{"a"}}},
			holds: []string{"", "", ""},
			want:  Result{Failure: "the update has failed in a", Record: Record{Failed: []string{"a"}}},
		},
		{
			name:  "it goes on if that is approved",
			in:    Input{Policy: canaryFirst, Clusters: clusters(Cluster{Begun: true, Failed: true}, done, done), Record: Record{Update: "v2", Failed: []string{"a"}}, Approval: Approval{Update: "v2", Failures: true}},
			holds: []string{"", "", ""},
		},
		{
			name:  "tolerated failures do not end it",
			in:    Input{Policy: Policy{Stages: []Stage{{Name: "all"}}, Tolerated: 1}, Clusters: []Cluster{{Name: "a", Begun: true, Failed: true}, {Name: "b"}}},
			holds: []string{"", ""},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.in.Update, test.in.Now = "v2", start
			test.want.Holds, test.want.Record.Update = test.holds, "v2"
			if diff := cmp.Diff(test.want, Decide(test.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStagesHold follows random policies: no cluster begins before the stages before its own are finished, observed and approved, no more
// clusters of a stage are updated at once than it allows, and every update finishes.
func TestStagesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Update: "v2", Now: start}
		for n := range rapid.IntRange(1, 4).Draw(t, "stages") {
			in.Stages = append(in.Stages, Stage{
				Name: string(rune('a' + n)), AtOnce: rapid.IntRange(0, 2).Draw(t, "at once"), Approval: rapid.Bool().Draw(t, "approval"),
				Soak: time.Duration(rapid.IntRange(0, 3).Draw(t, "soak")) * time.Second,
			})
		}
		for range rapid.IntRange(1, 8).Draw(t, "clusters") {
			in.Clusters = append(in.Clusters, Cluster{Stage: rapid.IntRange(0, len(in.Stages)-1).Draw(t, "stage")})
		}
		since := map[int]time.Time{} // the first moment at which all clusters of a stage were done
		for range 1000 {
			result := Decide(in)
			in.Record = result.Record
			active := make([]int, len(in.Stages))
			for _, c := range in.Clusters {
				if c.Begun && !c.Done {
					active[c.Stage]++
				}
			}
			for i, hold := range result.Holds {
				c := &in.Clusters[i]
				if c.Begun && hold != "" {
					t.Fatalf("a cluster that has begun is held: %s", hold)
				}
				if c.Begun || hold != "" {
					continue
				}
				for earlier := range c.Stage {
					if !slices.ContainsFunc(in.Clusters, func(c Cluster) bool { return c.Stage == earlier }) {
						continue
					}
					if at, finished := since[earlier]; !finished || in.Now.Sub(at) < in.Stages[earlier].Soak {
						t.Fatalf("a cluster of stage %d may begin at %s; stage %d was finished at %s", c.Stage, in.Now, earlier, at)
					}
				}
				if stage := &in.Stages[c.Stage]; stage.Approval && !slices.Contains(in.Approval.Stages, stage.Name) {
					t.Fatalf("stage %s was not approved", stage.Name)
				}
				if active[c.Stage]++; in.Stages[c.Stage].AtOnce > 0 && active[c.Stage] > in.Stages[c.Stage].AtOnce {
					t.Fatalf("%d clusters of stage %d are updated at once", active[c.Stage], c.Stage)
				}
				if rapid.Bool().Draw(t, "begins") {
					c.Begun = true
				}
			}
			for i := range in.Clusters {
				if c := &in.Clusters[i]; c.Begun && !c.Done && rapid.Bool().Draw(t, "finishes") {
					c.Done = true
				}
			}
			for n := range in.Stages {
				_, known := since[n]
				if !known && !slices.ContainsFunc(in.Clusters, func(c Cluster) bool { return c.Stage == n && !c.Done }) {
					since[n] = in.Now
				}
				if rapid.IntRange(0, 4).Draw(t, "approves") == 0 {
					in.Approval = in.Approval.With("v2", in.Stages[n].Name)
				}
			}
			in.Now = in.Now.Add(time.Second)
			if !slices.ContainsFunc(in.Clusters, func(c Cluster) bool { return !c.Done }) {
				return
			}
		}
		t.Fatalf("it does not finish: %+v", in)
	})
}

// TestRecords reads what was written, and refuses everything else.
func TestRecords(t *testing.T) {
	record := Record{Update: "v2", Finished: map[string]int64{"canary": 7}, Failed: []string{"a"}}
	text, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (&Record{Update: "v2"}).Encode(); text != "" || err != nil {
		t.Errorf("an empty record is %q: %v", text, err)
	}
	if read, err := DecodeRecord(text); err != nil || !cmp.Equal(record, read) {
		t.Errorf("%s is read as %+v: %v", text, read, err)
	}
	approval := Approval{}.With("v1", "rest").With("v2", "rest").With("v2", "rest").With("v2", "")
	if text, err = approval.Encode(); err != nil {
		t.Fatal(err)
	}
	if read, err := DecodeApproval(text); err != nil || !cmp.Equal(Approval{Update: "v2", Stages: []string{"rest"}, Failures: true}, read) {
		t.Errorf("%s is read as %+v: %v", text, read, err)
	}
	for _, text := range []string{"x", `{"update":"v2","other":1}`, `{"update":"v2"}{}`} {
		if _, err := DecodeRecord(text); err == nil {
			t.Errorf("%q is read as a record", text)
		}
		if _, err := DecodeApproval(text); err == nil {
			t.Errorf("%q is read as an approval", text)
		}
	}
}
