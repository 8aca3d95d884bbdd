package native

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

const (
	hasMinimum  = "Available=True/MinimumReplicasAvailable"
	hasLess     = "Available=False/MinimumReplicasUnavailable"
	isComplete  = " Progressing=True/NewReplicaSetAvailable"
	isUpdating  = " Progressing=True/ReplicaSetUpdated"
	isTimedOut  = " Progressing=False/ProgressDeadlineExceeded"
	isPaused    = " Progressing=Unknown/DeploymentPaused"
	isResumed   = " Progressing=Unknown/DeploymentResumed"
	cannotGrow  = " ReplicaFailure=True/FailedCreate"
	tenReplicas = `spec: {replicas: 10, progressDeadlineSeconds: 600}`
)

// pods is what a member reports: a template of this generation, and pods that exist, are updated and available.
func pods(generation, existing, updated, up, missing int, conditions ...string) string {
	report := fmt.Sprintf(`{generation: 7, observedGeneration: 7, resourceTemplateGeneration: %d, replicas: %d, updatedReplicas: %d, readyReplicas: %d, availableReplicas: %d, unavailableReplicas: %d`,
		generation, existing, updated, up, up, missing)
	if len(conditions) > 0 {
		report += ", conditions: [" + strings.Join(conditions, ", ") + "]"
	}
	return report + "}"
}

const (
	memberHas      = `{type: Available, status: "True"}`
	memberLacks    = `{type: Available, status: "False"}`
	memberTimedOut = `{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: too late}`
	memberCannot   = `{type: Progressing, status: "False", reason: ReplicaSetCreateError, message: it exists}`
	memberFails    = `{type: ReplicaFailure, status: "True", reason: FailedCreate, message: quota}`
)

func TestDeploymentConditions(t *testing.T) {
	cases := map[string]struct {
		spec, conditions string
		duplicated       bool
		missing          int
		members          []string
		want             string
	}{
		"in no cluster":                {tenReplicas, "", false, 0, nil, hasLess + isUpdating},
		"duplicated to no cluster":     {tenReplicas, "", true, 0, nil, hasLess + isUpdating},
		"all pods are available":       {tenReplicas, "", false, 0, []string{pods(3, 6, 6, 6, 0), pods(3, 4, 4, 4, 0)}, hasMinimum + isComplete},
		"as few as may be available":   {tenReplicas, "", false, 0, []string{pods(3, 6, 6, 6, 0), pods(3, 4, 4, 2, 2, memberLacks)}, hasMinimum + isUpdating},
		"too few are available":        {tenReplicas, "", false, 0, []string{pods(3, 6, 6, 5, 1, memberHas), pods(3, 4, 4, 2, 2, memberHas)}, hasLess + isUpdating},
		"too few were placed":          {tenReplicas, "", false, 0, []string{pods(3, 6, 6, 6, 0)}, hasLess + isUpdating},
		"recreated with one missing":   {`spec: {replicas: 10, progressDeadlineSeconds: 600, strategy: {type: Recreate}}`, "", false, 0, []string{pods(3, 10, 10, 9, 1, memberHas)}, hasLess + isUpdating},
		"bounds of its own":            {`spec: {replicas: 10, progressDeadlineSeconds: 600, strategy: {rollingUpdate: {maxUnavailable: 4}}}`, "", false, 0, []string{pods(3, 10, 10, 6, 4, memberLacks)}, hasMinimum + isUpdating},
		"no replicas":                  {`spec: {replicas: 0, progressDeadlineSeconds: 600}`, "", false, 0, []string{pods(3, 0, 0, 0, 0)}, hasMinimum + isComplete},
		"no deadline":                  {`spec: {replicas: 1}`, isUpdating, false, 0, []string{pods(3, 1, 1, 1, 0)}, hasMinimum},
		"the longest deadline":         {`spec: {replicas: 1, progressDeadlineSeconds: 2147483647}`, isUpdating, false, 0, []string{pods(3, 1, 1, 1, 0)}, hasMinimum},
		"old pods are left":            {tenReplicas, "", false, 0, []string{pods(3, 6, 6, 6, 0), pods(3, 6, 4, 6, 0)}, hasMinimum + isUpdating},
		"a member has the old one":     {tenReplicas, hasMinimum + isUpdating, false, 0, []string{pods(3, 6, 6, 6, 0), pods(2, 4, 4, 4, 0)}, hasMinimum + isUpdating},
		"a member is silent":           {tenReplicas, "", false, 0, []string{pods(3, 10, 10, 10, 0), ""}, hasMinimum + isUpdating},
		"a pod fails afterwards":       {tenReplicas, hasMinimum + isComplete, false, 0, []string{pods(3, 10, 10, 9, 1, memberHas)}, hasMinimum + isComplete},
		"an update begins":             {tenReplicas, hasMinimum + isComplete, false, 0, []string{pods(3, 12, 5, 8, 4, memberHas)}, hasMinimum + isUpdating},
		"a member is late":             {tenReplicas, hasMinimum + isUpdating, false, 0, []string{pods(3, 6, 6, 6, 0), pods(3, 5, 1, 4, 1, memberHas, memberTimedOut)}, hasMinimum + isTimedOut},
		"a member is late and paused":  {`spec: {replicas: 10, progressDeadlineSeconds: 600, paused: true}`, hasMinimum + isTimedOut, false, 0, []string{pods(3, 11, 1, 10, 1, memberHas, memberTimedOut)}, hasMinimum + isTimedOut},
		"a member was late":            {tenReplicas, hasMinimum + isTimedOut, false, 0, []string{pods(3, 11, 2, 10, 1, memberHas)}, hasMinimum + isUpdating},
		"late is worse than impeded":   {tenReplicas, "", false, 0, []string{pods(3, 5, 0, 5, 0, memberCannot), pods(3, 6, 1, 5, 1, memberTimedOut)}, hasMinimum + isTimedOut},
		"a member is impeded":          {tenReplicas, "", false, 0, []string{pods(3, 10, 0, 10, 0, memberCannot)}, hasMinimum + " Progressing=False/ReplicaSetCreateError"},
		"pods cannot be created":       {tenReplicas, "", false, 0, []string{pods(3, 9, 9, 9, 1, memberHas, memberFails)}, hasMinimum + isUpdating + cannotGrow},
		"pods can be created again":    {tenReplicas, hasMinimum + isComplete + cannotGrow, false, 0, []string{pods(3, 10, 10, 10, 0)}, hasMinimum + isComplete},
		"paused":                       {`spec: {replicas: 10, progressDeadlineSeconds: 600, paused: true}`, hasMinimum + isComplete, false, 0, []string{pods(3, 10, 10, 10, 0)}, hasMinimum + isPaused},
		"resumed":                      {tenReplicas, hasMinimum + isPaused, false, 0, []string{pods(3, 0, 0, 0, 10)}, hasLess + isResumed},
		"resumed, and then updated":    {tenReplicas, hasMinimum + isPaused, false, 0, []string{pods(3, 10, 1, 10, 0)}, hasMinimum + isUpdating},
		"resumed when complete":        {tenReplicas, hasMinimum + isPaused, false, 0, []string{pods(3, 10, 10, 10, 0)}, hasMinimum + isComplete},
		"available everywhere":         {tenReplicas, "", true, 0, []string{pods(3, 10, 10, 10, 0), pods(3, 10, 10, 8, 2, memberHas)}, hasMinimum + isUpdating},
		"unavailable somewhere":        {tenReplicas, "", true, 0, []string{pods(3, 10, 10, 10, 0), pods(3, 10, 10, 7, 3, memberLacks)}, hasLess + isUpdating},
		"complete everywhere":          {tenReplicas, "", true, 0, []string{pods(3, 10, 10, 10, 0), pods(3, 2, 2, 2, 0)}, hasMinimum + isComplete},
		"not yet in all clusters":      {tenReplicas, "", true, 1, []string{pods(3, 10, 10, 10, 0)}, hasLess + isUpdating},
		"a member has not looked":      {tenReplicas, "", true, 0, []string{pods(3, 10, 10, 10, 0), `{generation: 1, resourceTemplateGeneration: 3}`}, hasLess + isUpdating},
		"a cluster is silent":          {tenReplicas, "", true, 0, []string{pods(3, 10, 10, 10, 0), ""}, hasLess + isUpdating},
		"an agent without generations": {tenReplicas, "", true, 0, []string{`{replicas: 10, updatedReplicas: 10, readyReplicas: 10, availableReplicas: 10}`}, hasMinimum + isUpdating},
		"replicas of members' own":     {"metadata: {labels: {resourcetemplate.karmada.io/retain-replicas: \"true\"}}\n" + tenReplicas, "", false, 0, []string{pods(0, 2, 2, 2, 0)}, hasMinimum + isComplete},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := fixture.Object(t, "apiVersion: apps/v1\nkind: Deployment\n"+tc.spec)
			if tc.spec[0] == 's' {
				template.SetGeneration(3)
			}
			template.SetName("web")
			template.Object["status"] = map[string]any{"conditions": append([]any{map[string]any{"type": "EntryOpen", "status": "True"}}, stored(tc.conditions)...)}
			placed := kinds.Placed{Items: fixture.Items(t, tc.members...), Missing: tc.missing, Divided: !tc.duplicated}
			unchanged := fixture.Frozen(t, template)
			got := withConditions(t, template, placed, later)
			unchanged()
			if text := conditionsOf(t, got); text != "EntryOpen=True/ "+tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
			if again := withConditions(t, got, placed, later.Add(time.Hour)); again != got {
				t.Errorf("again it is another object with %s", conditionsOf(t, again))
			}
		})
	}
}

var (
	earlier = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	later   = earlier.Add(time.Minute)
)

// stored returns conditions as text describes them.
func stored(text string) []any {
	var conditions []any
	for _, one := range strings.Fields(text) {
		kind, rest, _ := strings.Cut(one, "=")
		status, reason, _ := strings.Cut(rest, "/")
		at := earlier.Format(time.RFC3339)
		conditions = append(conditions, map[string]any{"type": kind, "status": status, "reason": reason, "message": "m", "lastUpdateTime": at, "lastTransitionTime": at})
	}
	return conditions
}

func withConditions(t interface{ Fatal(...any) }, template *unstructured.Unstructured, placed kinds.Placed, now time.Time) *unstructured.Unstructured {
	aggregated, err := deployment.AggregateStatus(template, placed.Items)
	if err != nil {
		t.Fatal(err)
	}
	complete, err := deployment.Conditions(template, aggregated, placed, now)
	if err != nil {
		t.Fatal(err)
	}
	return complete
}

func conditionsOf(t interface{ Fatal(...any) }, obj *unstructured.Unstructured) string {
	conditions, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, condition := range conditions {
		c, err := readCondition(condition.(map[string]any))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, c.Type+"="+c.Status+"/"+c.Reason)
	}
	return strings.Join(texts, " ")
}

// TestDeploymentTimesOutInOneCluster checks that tools see it although the template has not reached the other cluster, and wait again when it is over.
func TestDeploymentTimesOutInOneCluster(t *testing.T) {
	template := fixture.Object(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {generation: 3, name: web}\n"+tenReplicas+"\nstatus: {observedGeneration: 2}")
	for _, step := range []struct {
		members  []string
		want     string
		observed int64
	}{
		{[]string{pods(3, 6, 1, 5, 1, memberHas), pods(2, 5, 5, 5, 0)}, hasMinimum + isUpdating, 2},
		{[]string{pods(3, 6, 1, 5, 1, memberHas, memberTimedOut), pods(2, 5, 5, 5, 0)}, hasMinimum + isTimedOut, 3},
		{[]string{pods(3, 6, 2, 5, 1, memberHas), pods(2, 5, 5, 5, 0)}, hasMinimum + isUpdating, 2},
		{[]string{pods(3, 5, 5, 5, 0), pods(2, 6, 6, 5, 1, memberHas, memberTimedOut)}, hasMinimum + isTimedOut, 2},
		{[]string{pods(3, 5, 5, 5, 0), pods(3, 6, 1, 5, 1, memberHas)}, hasMinimum + isUpdating, 3},
		{[]string{pods(3, 5, 5, 5, 0), pods(3, 5, 5, 5, 0)}, hasMinimum + isComplete, 3},
	} {
		placed := kinds.Placed{Items: fixture.Items(t, step.members...), Divided: true}
		template = withConditions(t, template, placed, later)
		if got, observed := conditionsOf(t, template), kinds.NumbersOf(template).At("status", "observedGeneration"); got != step.want || observed != step.observed {
			t.Errorf("%s: got %s and generation %d, want %s and %d", step.members, got, observed, step.want, step.observed)
		}
		if again := withConditions(t, template, placed, later); again != template {
			t.Errorf("%s: again it is another object with %s", step.members, conditionsOf(t, again))
		}
	}
}

// TestDeploymentConditionTimes checks messages and times: a transition is a change of status, and progress is an update.
func TestDeploymentConditionTimes(t *testing.T) {
	template := fixture.Object(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {generation: 3, name: web}\n"+tenReplicas)
	expect := func(what, want string) {
		t.Helper()
		t.Run(what, func(t *testing.T) {
			conditions, _, err := unstructured.NestedSlice(template.Object, "status", "conditions")
			if err != nil {
				t.Fatal(err)
			}
			fixture.Equal(t, any(conditions), fixture.Value(t, strings.NewReplacer("T0", "2026-01-01T00:00:00Z", "T1", "2026-01-01T00:01:00Z", "T2", "2026-01-01T00:02:00Z", "T3", "2026-01-01T00:03:00Z").Replace(want)))
		})
	}
	next := func(minute int, members ...string) {
		t.Helper()
		template = withConditions(t, template, kinds.Placed{Items: fixture.Items(t, members...), Divided: true}, earlier.Add(time.Duration(minute)*time.Minute))
	}
	next(0, pods(3, 5, 5, 0, 5, memberLacks), pods(3, 5, 5, 0, 5, memberLacks))
	expect("it begins", `
- {type: Available, status: "False", reason: MinimumReplicasUnavailable, message: Deployment does not have minimum availability., lastUpdateTime: "T0", lastTransitionTime: "T0"}
- {type: Progressing, status: "True", reason: ReplicaSetUpdated, message: 'Deployment "web" is progressing.', lastUpdateTime: "T0", lastTransitionTime: "T0"}`)
	next(1, pods(3, 5, 5, 4, 1, memberHas), pods(3, 5, 5, 4, 1, memberHas))
	expect("it goes on", `
- {type: Available, status: "True", reason: MinimumReplicasAvailable, message: Deployment has minimum availability., lastUpdateTime: "T1", lastTransitionTime: "T1"}
- {type: Progressing, status: "True", reason: ReplicaSetUpdated, message: 'Deployment "web" is progressing.', lastUpdateTime: "T1", lastTransitionTime: "T0"}`)
	next(2, pods(3, 5, 5, 5, 0), pods(3, 5, 5, 5, 0))
	expect("it is complete", `
- {type: Available, status: "True", reason: MinimumReplicasAvailable, message: Deployment has minimum availability., lastUpdateTime: "T1", lastTransitionTime: "T1"}
- {type: Progressing, status: "True", reason: NewReplicaSetAvailable, message: 'Deployment "web" has successfully progressed.', lastUpdateTime: "T2", lastTransitionTime: "T0"}`)
	next(3, pods(3, 6, 1, 5, 1, memberHas, memberTimedOut, memberFails), pods(3, 6, 1, 5, 1, memberHas, memberTimedOut))
	expect("a later update is stuck", `
- {type: Available, status: "True", reason: MinimumReplicasAvailable, message: Deployment has minimum availability., lastUpdateTime: "T1", lastTransitionTime: "T1"}
- {type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: 'In m1, m2: too late', lastUpdateTime: "T3", lastTransitionTime: "T3"}
- {type: ReplicaFailure, status: "True", reason: FailedCreate, message: 'In m1: quota', lastUpdateTime: "T3", lastTransitionTime: "T3"}`)
}

// TestDeploymentConditionsCostNoWrite feeds random reports and edits: the status changes only if the numbers, or the conditions that members report, do.
func TestDeploymentConditionsCostNoWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "generation": int64(1)}, "spec": map[string]any{},
		}}
		divided := rapid.Bool().Draw(t, "divided")
		var items []workv1alpha2.AggregatedStatusItem
		told := ""
		for round := range rapid.IntRange(1, 8).Draw(t, "rounds") {
			if round == 0 || rapid.Bool().Draw(t, "edited") {
				template = template.DeepCopy()
				template.SetGeneration(template.GetGeneration() + 1)
				template.Object["spec"] = map[string]any{
					"replicas": int64(rapid.IntRange(0, 6).Draw(t, "replicas")), "paused": rapid.Bool().Draw(t, "paused"),
					"progressDeadlineSeconds": rapid.SampledFrom([]int64{600, 600, 900}).Draw(t, "deadline"),
				}
			}
			reported := told
			if round == 0 || rapid.Bool().Draw(t, "reported") {
				items, reported = drawReports(t, template.GetGeneration())
			}
			placed := kinds.Placed{Items: items, Divided: divided}
			aggregated, err := deployment.AggregateStatus(template, items)
			if err != nil {
				t.Fatal(err)
			}
			now := earlier.Add(time.Duration(round) * time.Hour)
			after := withConditions(t, template, placed, now)
			if aggregated == template && after != template && reported == told && round > 0 {
				t.Fatalf("round %d: a condition costs a write\nbefore %v\nafter %v", round, template.Object["status"], after.Object["status"])
			}
			checkConditionRules(t, template, after, now)
			if again := withConditions(t, after, placed, now.Add(time.Minute)); again != after {
				t.Fatalf("round %d: the same reports gave another status\nbefore %v\nafter %v", round, after.Object["status"], again.Object["status"])
			}
			template, told = after, reported
		}
	})
}

// drawReports returns what members report, and their conditions.
func drawReports(t *rapid.T, generation int64) ([]workv1alpha2.AggregatedStatusItem, string) {
	items := make([]workv1alpha2.AggregatedStatusItem, rapid.IntRange(1, 3).Draw(t, "members"))
	reported := ""
	for i := range items {
		items[i].ClusterName = fmt.Sprintf("m%d", i)
		up, missing := rapid.IntRange(0, 3).Draw(t, "up"), rapid.IntRange(0, 2).Draw(t, "missing")
		status := map[string]any{
			"generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": rapid.Int64Range(generation-1, generation).Draw(t, "has"),
			"replicas": up + missing, "updatedReplicas": rapid.IntRange(0, up+missing).Draw(t, "updated"), "readyReplicas": up, "availableReplicas": up, "unavailableReplicas": missing,
		}
		var conditions []any
		for _, text := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{memberHas, memberTimedOut, memberFails}), 0, 3, rapid.ID).Draw(t, "conditions") {
			conditions = append(conditions, fixture.Value(quiet{}, text))
		}
		if conditions != nil {
			status["conditions"] = conditions
		}
		raw, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		items[i].Status = &runtime.RawExtension{Raw: raw}
		reported += fmt.Sprint(conditions, missing)
	}
	return items, reported
}

// quiet is a testing.TB for fixtures that are known to be valid.
type quiet struct{ testing.TB }

func (quiet) Helper() {}

func checkConditionRules(t *rapid.T, before, after *unstructured.Unstructured, now time.Time) {
	was, is := conditionMaps(t, before), conditionMaps(t, after)
	for kind, condition := range is {
		switch old := was[kind]; {
		case old == nil || old["status"] != condition["status"]:
			if condition["lastTransitionTime"] != now.Format(time.RFC3339) {
				t.Fatalf("%s changed its status and not its time: %v", kind, condition)
			}
		case old["lastTransitionTime"] != condition["lastTransitionTime"]:
			t.Fatalf("%s kept its status and changed its time: %v", kind, condition)
		}
	}
	complete := is["Progressing"] != nil && is["Progressing"]["reason"] == reasonComplete
	if n := kinds.NumbersOf(after); complete && n.At("status", "updatedReplicas") != n.At("status", "replicas") && !reflect.DeepEqual(is, was) {
		t.Fatalf("complete with old pods: %v", after.Object["status"])
	}
}

func conditionMaps(t *rapid.T, obj *unstructured.Unstructured) map[string]map[string]any {
	conditions, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]map[string]any{}
	for _, condition := range conditions {
		c := condition.(map[string]any)
		if of[c["type"].(string)] != nil {
			t.Fatalf("two conditions %v", c["type"])
		}
		of[c["type"].(string)] = c
	}
	return of
}
