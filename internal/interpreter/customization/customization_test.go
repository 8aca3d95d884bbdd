package customization

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/fixture"
	"github.com/cellplane/cellplane/internal/interpreter/lua"
)

// named returns a customization of kind example.com/v1 Foo with scripts by their field.
func named(t *testing.T, name string, scripts map[string]string) *configv1alpha1.ResourceInterpreterCustomization {
	t.Helper()
	c := &configv1alpha1.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Target = configv1alpha1.CustomizationTarget{APIVersion: "example.com/v1", Kind: "Foo"}
	for field, script := range scripts {
		switch r := &c.Spec.Customizations; field {
		case "retention":
			r.Retention = &configv1alpha1.LocalValueRetention{LuaScript: script}
		case "replicaResource":
			r.ReplicaResource = &configv1alpha1.ReplicaResourceRequirement{LuaScript: script}
		case "componentResource":
			r.ComponentResource = &configv1alpha1.ComponentResourceRequirement{LuaScript: script}
		case "replicaRevision":
			r.ReplicaRevision = &configv1alpha1.ReplicaRevision{LuaScript: script}
		case "statusReflection":
			r.StatusReflection = &configv1alpha1.StatusReflection{LuaScript: script}
		case "statusAggregation":
			r.StatusAggregation = &configv1alpha1.StatusAggregation{LuaScript: script}
		case "healthInterpretation":
			r.HealthInterpretation = &configv1alpha1.HealthInterpretation{LuaScript: script}
		case "dependencyInterpretation":
			r.DependencyInterpretation = &configv1alpha1.DependencyInterpretation{LuaScript: script}
		case "rolloutInterpretation":
			r.RolloutInterpretation = &configv1alpha1.RolloutInterpretation{LuaScript: script}
		case "rolloutRevision":
			r.RolloutRevision = &configv1alpha1.RolloutRevision{LuaScript: script}
		default:
			t.Fatalf("no field %s", field)
		}
	}
	return c
}

func compile(t *testing.T, customizations ...*configv1alpha1.ResourceInterpreterCustomization) *Set {
	t.Helper()
	set, err := Compile(lua.NewRunner(lua.Limits{}, nil), customizations, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const foo = `
apiVersion: example.com/v1
kind: Foo
metadata: {name: x, namespace: ns, generation: 2}
spec:
  size: 3
  emptyList: []
  emptyObject: {}
  nothing: null
  big: 9007199254740993
  template:
    spec:
      nodeSelector: {disk: ssd}
      containers: [{name: a, resources: {requests: {cpu: 500m}}, envFrom: [{configMapRef: {name: c}}]}]
status: {ready: 2}`

func TestOperations(t *testing.T) {
	set := compile(t, named(t, "c", map[string]string{
		"replicaResource": `
local kube = require("kube")
function GetReplicas(obj)
  return obj.spec.size, kube.accuratePodRequirements(obj.spec.template)
end`,
		"componentResource": `
local kube = require("kube")
function GetComponents(obj)
  local components = {}
  for i, name in ipairs({"head", "worker"}) do
    table.insert(components, {name = name, replicas = i, replicaRequirements = kube.accuratePodRequirements(obj.spec.template)})
  end
  return components
end`,
		"replicaRevision": `function ReviseReplica(obj, desiredReplica) obj.spec.size = desiredReplica return obj end`,
		"retention":       `function Retain(desiredObj, observedObj) desiredObj.spec.address = observedObj.spec.address return desiredObj end`,
		"statusAggregation": `
function AggregateStatus(desiredObj, statusItems)
  local status = {ready = 0, clusters = {}, silent = {}}
  for i = 1, #statusItems do
    if statusItems[i].status ~= nil then
      status.ready = status.ready + (statusItems[i].status.ready or 0)
      status.clusters[#status.clusters + 1] = statusItems[i].clusterName .. ":" .. tostring(statusItems[i].applied) .. ":" .. (statusItems[i].health or "")
    else
      table.insert(status.silent, statusItems[i].clusterName .. ":" .. statusItems[i].appliedMessage)
    end
  end
  desiredObj.status = status
  return desiredObj
end`,
		"statusReflection":     `function ReflectStatus(observedObj) return {ready = observedObj.status.ready, generation = observedObj.metadata.generation} end`,
		"healthInterpretation": `function InterpretHealth(observedObj) return observedObj.status.ready >= observedObj.spec.size end`,
		"dependencyInterpretation": `
local kube = require("kube")
function GetDependencies(desiredObj)
  local refs = kube.getPodDependencies(desiredObj.spec.template, desiredObj.metadata.namespace)
  table.insert(refs, {apiVersion = "v1", kind = "Secret", labelSelector = {matchLabels = {app = desiredObj.metadata.name}}})
  return refs
end`,
	}))
	ctx, obj := context.Background(), fixture.Object(t, foo)
	unchanged := fixture.Frozen(t, obj)

	replicas, requirements, err := set.Replicas(ctx, obj)
	if err != nil || replicas != 3 || requirements.ResourceRequest.Cpu().String() != "500m" || requirements.NodeClaim.NodeSelector["disk"] != "ssd" ||
		requirements.Namespace != obj.GetNamespace() || requirements.Namespace == "" {
		t.Errorf("replicas: %d, %+v, %v", replicas, requirements, err)
	}
	components, err := set.Components(ctx, obj)
	if err != nil || len(components) != 2 || components[1].Name != "worker" || components[1].Replicas != 2 || components[0].ReplicaRequirements.ResourceRequest.Cpu().String() != "500m" {
		t.Errorf("components: %+v, %v", components, err)
	}
	revised, err := set.ReviseReplica(ctx, obj, 7)
	if err != nil {
		t.Fatal(err)
	}
	want := obj.DeepCopy()
	want.Object["spec"].(map[string]any)["size"] = int64(7)
	fixture.Equal(t, any(revised.Object), any(want.Object))

	retained, err := set.Retain(ctx, obj, fixture.Object(t, `{spec: {address: {ip: 1.2.3.4, ports: []}}}`))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, retained.Object["spec"].(map[string]any)["address"], fixture.Value(t, `{ip: 1.2.3.4, ports: []}`))

	items := fixture.Items(t, `{ready: 1}`, "", `{ready: 4}`)
	items[0].Health, items[1].AppliedMessage = workv1alpha2.ResourceHealthy, "no room"
	aggregated, err := set.AggregateStatus(ctx, obj, items)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, aggregated.Object["status"], fixture.Value(t, `{ready: 5, clusters: ["m1:true:Healthy", "m3:true:"], silent: ["m2:no room"]}`))
	if again, err := set.AggregateStatus(ctx, aggregated, items); again != aggregated || err != nil {
		t.Errorf("aggregating again returned a new object, %v", err)
	}
	if got, err := set.AggregateStatus(ctx, obj, nil); err != nil {
		t.Errorf("aggregating nothing: %v, %v", got, err)
	}

	status, err := set.ReflectStatus(ctx, obj)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Equal(t, fixture.Status(t, status), fixture.Value(t, `{ready: 2, generation: 2}`))
	if health, err := set.Health(ctx, obj); health != workv1alpha2.ResourceUnhealthy || err != nil {
		t.Errorf("health: %s, %v", health, err)
	}
	refs, err := set.Dependencies(ctx, obj)
	if err != nil || len(refs) != 2 || refs[0].Kind != "ConfigMap" || refs[0].Namespace != "ns" || refs[1].LabelSelector.MatchLabels["app"] != "x" {
		t.Errorf("dependencies: %+v, %v", refs, err)
	}
	unchanged()
}

func TestRollout(t *testing.T) {
	set := compile(t, named(t, "c", map[string]string{
		"rolloutInterpretation": `
function InterpretRollout(obj)
  if obj.spec.size == nil then return nil end
  return {replicas = obj.spec.size, maxSurge = "25%", maxUnavailable = 1, paused = false, observedGeneration = obj.metadata.generation, pods = 4, updated = 1, available = obj.status.ready}
end`,
		"rolloutRevision": `
function ReviseRollout(desiredObj, grant)
  desiredObj.spec.size, desiredObj.spec.budget = grant.replicas, {extra = grant.maxSurge, missing = grant.maxUnavailable, hold = grant.paused}
  return desiredObj
end`,
	}))
	obj := fixture.Object(t, foo)
	unchanged := fixture.Frozen(t, obj)
	rollout, err := set.Rollout(t.Context(), obj)
	if err != nil || rollout.Replicas != 3 || rollout.MaxSurge.String() != "25%" || rollout.MaxUnavailable.IntValue() != 1 || rollout.ObservedGeneration != 2 || rollout.Pods != 4 || rollout.Updated != 1 || rollout.Available != 2 {
		t.Errorf("rollout: %+v, %v", rollout, err)
	}
	revised, err := set.ReviseRollout(t.Context(), obj, configv1alpha1.RolloutGrant{Replicas: 2, MaxSurge: 1, Paused: true})
	if err != nil {
		t.Fatal(err)
	}
	spec := revised.Object["spec"].(map[string]any)
	fixture.Equal(t, spec["size"], any(int64(2)))
	fixture.Equal(t, spec["budget"], fixture.Value(t, `{extra: 1, missing: 0, hold: true}`))
	unchanged()
	if rollout, err := set.Rollout(t.Context(), fixture.Object(t, `{apiVersion: example.com/v1, kind: Foo, metadata: {name: x}, spec: {}}`)); rollout != nil || err != nil {
		t.Errorf("an object that is not updated step by step: %+v, %v", rollout, err)
	}
}

func TestSeveralCustomizationsOfOneKind(t *testing.T) {
	set := compile(t,
		named(t, "b", map[string]string{
			"healthInterpretation":     `function InterpretHealth(o) return false end`,
			"dependencyInterpretation": `function GetDependencies(o) return {{apiVersion = "v1", kind = "Secret", name = "s"}, {apiVersion = "v1", kind = "ConfigMap", name = "c"}} end`,
		}),
		named(t, "a", map[string]string{
			"healthInterpretation":     `function InterpretHealth(o) return true end`,
			"replicaResource":          `function GetReplicas(o) return 1 end`,
			"dependencyInterpretation": `function GetDependencies(o) return {{apiVersion = "v1", kind = "Secret", name = "s"}} end`,
		}),
		named(t, "d", map[string]string{"dependencyInterpretation": `function GetDependencies(o) return {} end`}))
	ctx, obj := context.Background(), fixture.Object(t, foo)
	if health, err := set.Health(ctx, obj); health != workv1alpha2.ResourceHealthy || err != nil {
		t.Errorf("of two claims the first by name must count: %s, %v", health, err)
	}
	refs, err := set.Dependencies(ctx, obj)
	if err != nil || len(refs) != 2 || refs[0].Name != "s" || refs[1].Name != "c" {
		t.Errorf("dependencies are not the union: %v, %v", refs, err)
	}
	if n, r, err := set.Replicas(ctx, obj); n != 1 || r != nil || err != nil {
		t.Errorf("replicas without requirements: %d, %v, %v", n, r, err)
	}
}

func TestMistakesStayWhereTheyAre(t *testing.T) {
	broken := named(t, "broken", map[string]string{"healthInterpretation": "function InterpretHealth(o)\n  return )\nend"})
	lost := named(t, "lost", map[string]string{"retention": "x = 1"})
	lost.Spec.Target.APIVersion = "a/b/c"
	good := named(t, "good", map[string]string{"replicaResource": `function GetReplicas(o) return 1 end`})
	set, err := Compile(lua.NewRunner(lua.Limits{}, nil), []*configv1alpha1.ResourceInterpreterCustomization{broken, lost, good}, nil)
	for _, want := range []string{"ResourceInterpreterCustomization broken: spec.customizations.healthInterpretation.luaScript", "line:2", "ResourceInterpreterCustomization lost: spec.target.apiVersion"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	ctx, obj := context.Background(), fixture.Object(t, foo)
	if n, _, err := set.Replicas(ctx, obj); n != 1 || err != nil {
		t.Errorf("the good customization gave %d, %v", n, err)
	}
	if !set.Supports(obj.GroupVersionKind(), configv1alpha1.InterpreterOperationInterpretHealth) {
		t.Error("the operation of a broken script is not supported")
	}
	if health, err := set.Health(ctx, obj); health != workv1alpha2.ResourceUnknown || err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the broken script gave %s, %v", health, err)
	}
}

func TestUnusableResults(t *testing.T) {
	cases := map[string]struct {
		field, script, want string
		call                func(*Set, *unstructured.Unstructured) error
	}{
		"no replicas":       {"replicaResource", `function GetReplicas(o) end`, "a number of replicas", replicas},
		"replicas as text":  {"replicaResource", `function GetReplicas(o) return "3" end`, "replica: expected an integer, found a string", replicas},
		"half a replica":    {"replicaResource", `function GetReplicas(o) return 1.5 end`, "expected an integer", replicas},
		"negative replicas": {"replicaResource", `function GetReplicas(o) return -1 end`, "not between 0", replicas},
		"requirements":      {"replicaResource", `function GetReplicas(o) return 1, "x" end`, "requires: expected an object, found a string", replicas},
		"quantity":          {"replicaResource", `function GetReplicas(o) return 1, {resourceRequest = {cpu = "1e1000000000"}} end`, "requires.resourceRequest.cpu", replicas},
		"node claim":        {"replicaResource", `function GetReplicas(o) return 1, {nodeClaim = "x"} end`, "nodeClaim", replicas},
		"components": {"componentResource", `function GetComponents(o) return {1} end`, "components[0]: expected an object", func(s *Set, obj *unstructured.Unstructured) error {
			_, err := s.Components(context.Background(), obj)
			return err
		}},
		"nameless": {"componentResource", `function GetComponents(o) return {{replicas = 1}} end`, "components[0]: it needs a name", func(s *Set, obj *unstructured.Unstructured) error {
			_, err := s.Components(context.Background(), obj)
			return err
		}},
		"health":    {"healthInterpretation", `function InterpretHealth(o) return 1 end`, "healthy: expected a boolean", health},
		"no health": {"healthInterpretation", `function InterpretHealth(o) end`, "true or false", health},
		"status": {"statusReflection", `function ReflectStatus(o) return {1} end`, "status: expected an object, found a list", func(s *Set, obj *unstructured.Unstructured) error {
			_, err := s.ReflectStatus(context.Background(), obj)
			return err
		}},
		"dependency": {"dependencyInterpretation", `function GetDependencies(o) return {{kind = "Secret"}} end`, "dependencies[0]: it needs apiVersion", func(s *Set, obj *unstructured.Unstructured) error {
			_, err := s.Dependencies(context.Background(), obj)
			return err
		}},
		"no object":         {"replicaRevision", `function ReviseReplica(o) return 1 end`, "it must return an object", revise},
		"another name":      {"replicaRevision", `function ReviseReplica(o) o.metadata.name = "y" return o end`, `it changed metadata.name from "x" to "y"`, revise},
		"another namespace": {"replicaRevision", `function ReviseReplica(o) o.metadata.namespace = "kube-system" return o end`, `it changed metadata.namespace`, revise},
		"another kind":      {"replicaRevision", `function ReviseReplica(o) o.kind = "Bar" return o end`, `it changed kind`, revise},
		"missing function":  {"replicaRevision", `function Revise(o) return o end`, "defines no global function ReviseReplica", revise},
		"failing":           {"replicaRevision", "function ReviseReplica(o)\n  return o.spec.missing.field\nend", "(replicaRevision):2: attempt to index a non-table object(nil)", revise},
		"endless":           {"replicaRevision", "function ReviseReplica(o) while true do end end", "the script was stopped", revise},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.call(compile(t, named(t, "culprit", map[string]string{tc.field: tc.script})), fixture.Object(t, foo))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "ResourceInterpreterCustomization culprit ("+tc.field+")") {
				t.Fatalf("got %v, want an error naming the customization and saying %q", err, tc.want)
			}
		})
	}
}

func replicas(s *Set, obj *unstructured.Unstructured) error {
	_, _, err := s.Replicas(context.Background(), obj)
	return err
}

func health(s *Set, obj *unstructured.Unstructured) error {
	_, err := s.Health(context.Background(), obj)
	return err
}

func revise(s *Set, obj *unstructured.Unstructured) error {
	_, err := s.ReviseReplica(context.Background(), obj, 3)
	return err
}

func TestScriptsAreCompiledOnce(t *testing.T) {
	runner := lua.NewRunner(lua.Limits{}, nil)
	one := []*configv1alpha1.ResourceInterpreterCustomization{named(t, "a", map[string]string{"healthInterpretation": `function InterpretHealth(o) return true end`})}
	first, err := Compile(runner, one, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Compile(runner, append(one, named(t, "b", map[string]string{"replicaResource": `function GetReplicas(o) return 1 end`})), first)
	if err != nil {
		t.Fatal(err)
	}
	op := configv1alpha1.InterpreterOperationInterpretHealth
	gvk := fixture.Object(t, foo).GroupVersionKind()
	if first.kinds[gvk][op][0].compiled != second.kinds[gvk][op][0].compiled {
		t.Error("an unchanged script was compiled again")
	}
}
