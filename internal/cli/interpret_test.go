package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scoreCustomization = `
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: scores}
spec:
  target: {apiVersion: example.com/v1, kind: Score}
  customizations:
    replicaResource: {luaScript: "function GetReplicas(obj) return obj.spec.players, {} end"}
    replicaRevision: {luaScript: "function ReviseReplica(obj, n) obj.spec.players = n return obj end"}
    retention: {luaScript: "function Retain(desired, observed) desired.spec.key = observed.spec.key return desired end"}
    statusReflection: {luaScript: "function ReflectStatus(obj) return {goals = obj.status.goals} end"}
    statusAggregation: {luaScript: "function AggregateStatus(obj, items) local n = 0 for i = 1, #items do n = n + items[i].status.goals end obj.status = {goals = n} return obj end"}
    healthInterpretation: {luaScript: "function InterpretHealth(obj) return obj.status.goals > 1 end"}
    dependencyInterpretation: {luaScript: "function GetDependencies(obj) return {{apiVersion = 'v1', kind = 'Secret', namespace = 'a', name = obj.spec.key}} end"}
`

// documentedCustomization returns the example in the documentation of rollouts.
func documentedCustomization(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(text), "```") {
		if source, isYAML := strings.CutPrefix(block, "yaml\n"); isYAML && strings.Contains(source, "kind: ResourceInterpreterCustomization") {
			return source
		}
	}
	t.Fatal("docs/rollout.md has no ResourceInterpreterCustomization")
	return ""
}

// I13: customizations and built-in interpreters can be tested without a federation.
func TestInterpret(t *testing.T) {
	files := map[string]string{
		"scores":   scoreCustomization,
		"broken":   strings.Replace(scoreCustomization, "function GetReplicas(obj) return", "function GetReplicas(obj", 1),
		"again":    strings.Replace(scoreCustomization, "name: scores", "name: again", 1),
		"desired":  `{apiVersion: example.com/v1, kind: Score, metadata: {name: s}, spec: {players: 11, key: ours}}`,
		"observed": `{apiVersion: example.com/v1, kind: Score, metadata: {name: s}, spec: {players: 11, key: theirs}, status: {goals: 1, fouls: 9}}`,
		"items":    "- {clusterName: a, status: {goals: 2}}\n- {clusterName: b, status: {goals: 3}}\n",
		"fleets":   documentedCustomization(t),
		"fleet":    `{apiVersion: games.example/v1, kind: GameFleet, metadata: {name: f, generation: 4}, spec: {servers: 3, rolling: {extra: 25%}}, status: {generation: 4, servers: 4, current: 1, serving: 3}}`,
		"two":      "kind: A\n---\nkind: B\n",
		"pod":      `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3, template: {spec: {volumes: [{name: v, configMap: {name: settings}}]}}}}`,
		"ray":      `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r}, spec: {headGroupSpec: {template: {spec: {}}}, workerGroupSpecs: [{groupName: gpu, replicas: 3, template: {spec: {}}}]}}`,
	}
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct{ args, want, refusal string }{
		"correct":             {args: "-f @scores --check", want: "scores: example.com/v1 Score: correct"},
		"with a mistake":      {args: "-f @broken --check", refusal: "scores: "},
		"in conflict":         {args: "-f @scores -f @again --check", refusal: "again"},
		"nothing to check":    {args: "--check", refusal: "--filename"},
		"replicas":            {args: "-f @scores --operation InterpretReplica --desired-file @desired", want: "replica: 11"},
		"revised":             {args: "-f @scores --operation ReviseReplica --desired-file @desired --desired-replica 5", want: "players: 5"},
		"retained":            {args: "-f @scores --operation Retain --desired-file @desired --observed-file @observed", want: "key: theirs"},
		"status":              {args: "-f @scores --operation InterpretStatus --observed-file @observed", want: "status:\n  goals: 1\n"},
		"health":              {args: "-f @scores --operation InterpretHealth --observed-file @observed", want: "healthy: false"},
		"health of others":    {args: "--operation InterpretHealth --observed-file @observed", want: "healthy: true"},
		"aggregated":          {args: "-f @scores --operation AggregateStatus --desired-file @desired --status-file @items", want: "goals: 5"},
		"as Karmada has it":   {args: "-f @scores --operation aggregateStatus --observed-file @desired --status-file -", want: "aggregatedStatus:\n  apiVersion"},
		"dependencies":        {args: "-f @scores --operation InterpretDependency --desired-file @desired", want: "name: ours"},
		"rollout":             {args: "-f @fleets --operation interpretRollout --observed-file @fleet", want: "rollout:\n  available: 3\n  maxSurge: 25%\n  maxUnavailable: 1\n  observedGeneration: 4\n  pods: 4\n  replicas: 3\n  updated: 1\n"},
		"grant":               {args: "-f @fleets --operation reviseRollout --desired-file @fleet --desired-replica 5 --max-surge 1 --max-unavailable 2 --paused", want: "    rolling:\n      extra: 1\n      hold: true\n      missing: 2\n    servers: 5\n"},
		"rollout of others":   {args: "-f @scores --operation interpretRollout --observed-file @observed", refusal: "no customization has InterpretRollout for example.com/v1 Score"},
		"built in":            {args: "--operation InterpretReplica --desired-file @pod", want: "replica: 3"},
		"built in as well":    {args: "--operation InterpretDependency --desired-file @pod", want: "name: settings"},
		"components":          {args: "--operation InterpretComponent --desired-file @ray", want: "name: gpu\n  replicas: 3"},
		"components of none":  {args: "--operation InterpretComponent --desired-file @pod", want: "components: null"},
		"no mode":             {args: "-f @scores", refusal: "--operation"},
		"two modes":           {args: "-f @scores --check --operation Retain", refusal: "--operation"},
		"no such operation":   {args: "--operation Guess --desired-file @desired", refusal: "Guess"},
		"no object":           {args: "--operation InterpretHealth", refusal: "--desired-file"},
		"two objects":         {args: "--operation InterpretHealth --desired-file @two", refusal: "2 objects"},
		"one or the other":    {args: "--operation InterpretHealth --desired-file @desired --observed-file @observed", refusal: "one object"},
		"no statuses":         {args: "--operation AggregateStatus --desired-file @desired", refusal: "--status-file"},
		"no file":             {args: "-f @nowhere --check", refusal: "nowhere"},
		"a script that fails": {args: "-f @scores --operation InterpretHealth --observed-file @desired", refusal: "Score s"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newInterpret()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetIn(strings.NewReader(files["items"]))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(strings.Fields(strings.ReplaceAll(test.args, "@", dir+"/")))
			err := cmd.ExecuteContext(t.Context())
			switch {
			case test.refusal == "" && err != nil:
				t.Fatal(err)
			case test.refusal != "" && (err == nil || !strings.Contains(err.Error(), test.refusal)):
				t.Errorf("got %v, want something about %q", err, test.refusal)
			case !strings.Contains(out.String(), test.want):
				t.Errorf("got:\n%s\nwant something with %q", out.String(), test.want)
			}
		})
	}
}
