package interpreter

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

// fieldNames are the fields that built-in kinds read, so random objects made of them reach deep into the code.
var fieldNames = []string{
	"spec", "status", "metadata", "template", "containers", "initContainers", "volumes", "env", "envFrom", "valueFrom", "replicas", "parallelism",
	"conditions", "type", "reason", "message", "labels", "annotations", "name", "namespace", "generation", "observedGeneration", "secretRef",
	"configMap", "projected", "sources", "resources", "requests", "limits", "cpu", "memory", "loadBalancer", "ingress", "ports", "phase", "active",
	"startTime", "completionTime", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "tolerations", "nodeSelector",
	"secrets", "selector", "matchLabels", "tls", "rules", "http", "paths", "backend", "service", "tasks", "rayClusterSpec", "headGroupSpec",
	"workerGroupSpecs", "tfReplicaSpecs", "Worker", "driver", "executor", "gpu", "quantity", "jobManager", "taskManager", "resource", "podTemplate",
	"flinkConfiguration", "containerStatuses", "disruptedPods", "taskStatusCount", "rulecount", "replicaStatuses", "activeServiceStatus",
	"applicationStatuses", "applicationState", "volumeClaimTemplates", "manualSelector", "updateStrategy", "rollingUpdate", "partition", "minAvailable",
	"resourceTemplateGeneration", "updatedReplicas", "availableReplicas", "clusterIP", "overhead", "restartPolicy", "job", "templates", "executor",
}

func anyValue() *rapid.Generator[any] {
	var value *rapid.Generator[any]
	value = rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 12).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Int64().Draw(t, "int")
		case 3:
			return rapid.Float64().Draw(t, "float")
		case 4:
			return rapid.SampledFrom([]string{"", "x", "True", "Complete", "Failed", "1", "1Gi", "LoadBalancer", "2025-01-01T00:00:00Z", "None"}).Draw(t, "string")
		case 5, 6:
			return rapid.SliceOfN(value, 0, 3).Draw(t, "list")
		default:
			return rapid.MapOfN(rapid.SampledFrom(fieldNames), value, 0, 5).Draw(t, "object")
		}
	})
	return value
}

// mutate replaces a random place in a well-formed object by something else.
func mutate(t *rapid.T, value any, depth int) any {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 || depth == 0 {
			return anyValue().Draw(t, "value")
		}
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(t, "key")
		v[key] = mutate(t, v[key], depth-1)
		return v
	case []any:
		if len(v) == 0 || depth == 0 {
			return anyValue().Draw(t, "value")
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		v[i] = mutate(t, v[i], depth-1)
		return v
	}
	return anyValue().Draw(t, "value")
}

// TestMalformedObjects passes malformed objects to every operation of every built-in kind. Nothing may panic or change its
// input, and aggregation must be idempotent.
func TestMalformedObjects(t *testing.T) {
	i, ctx := New(Options{}), context.Background()
	type gvk struct{ apiVersion, kind string }
	var all []gvk
	for k := range builtIn {
		all = append(all, gvk{k.GroupVersion().String(), k.Kind})
	}
	slices.SortFunc(all, func(a, b gvk) int {
		return slices.Compare([]string{a.apiVersion, a.kind}, []string{b.apiVersion, b.kind})
	})
	wellFormed := func() map[string]any {
		pod := map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "a", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}}, "envFrom": []any{map[string]any{"secretRef": map[string]any{"name": "s"}}}}},
			"volumes":    []any{map[string]any{"projected": map[string]any{"sources": []any{map[string]any{"secret": map[string]any{"name": "s"}}}}}},
		}}
		return map[string]any{
			"metadata": map[string]any{"name": "x", "namespace": "ns", "generation": int64(1), "labels": map[string]any{"resourcetemplate.karmada.io/retain-replicas": "true"}},
			"spec": map[string]any{
				"replicas": int64(1), "template": pod, "tasks": []any{map[string]any{"name": "t", "template": pod}},
				"rayClusterSpec": map[string]any{"headGroupSpec": map[string]any{"template": pod}}, "headGroupSpec": map[string]any{"template": pod},
				"tfReplicaSpecs": map[string]any{"Worker": map[string]any{"template": pod}}, "driver": map[string]any{"memory": "1g"}, "ports": []any{map[string]any{"port": int64(80)}},
				"tls": []any{map[string]any{"secretName": "s"}}, "type": "LoadBalancer",
			},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}, "replicas": int64(1), "phase": "Running"},
		}
	}
	draw := func(t *rapid.T, k gvk, label string) *unstructured.Unstructured {
		var root map[string]any
		if rapid.Bool().Draw(t, label+" is random") {
			root = rapid.MapOfN(rapid.SampledFrom([]string{"spec", "status", "metadata", "type", "secrets", "data"}), anyValue(), 0, 4).Draw(t, label)
		} else {
			root = runtime.DeepCopyJSON(wellFormed())
			mutate(t, root, rapid.IntRange(1, 8).Draw(t, "depth"))
		}
		root["apiVersion"], root["kind"] = k.apiVersion, k.kind
		return &unstructured.Unstructured{Object: root}
	}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(all).Draw(t, "kind")
		obj, other := draw(t, k, "object"), draw(t, k, "other")
		before, otherBefore := runtime.DeepCopyJSON(obj.Object), runtime.DeepCopyJSON(other.Object)
		items := make([]workv1alpha2.AggregatedStatusItem, rapid.IntRange(0, 3).Draw(t, "members"))
		for n := range items {
			raw, err := json.Marshal(anyValue().Draw(t, "status"))
			if err != nil {
				t.Fatal(err)
			}
			items[n] = workv1alpha2.AggregatedStatusItem{ClusterName: "m", Status: &runtime.RawExtension{Raw: raw}}
		}
		_, _, _ = i.Replicas(ctx, obj)
		_, _ = i.Components(ctx, obj)
		_, _ = i.ReviseReplica(ctx, obj, 3)
		_, _ = i.Retain(ctx, obj, other)
		_, _ = i.ReflectStatus(ctx, obj)
		_, _ = i.Health(ctx, obj)
		_, _ = i.Dependencies(ctx, obj)
		_, _ = i.Prune(obj)
		if aggregated, err := i.AggregateStatus(ctx, obj, items); err == nil {
			if again, err := i.AggregateStatus(ctx, aggregated, items); err != nil || again != aggregated {
				t.Fatalf("aggregating again returned a new object: %v\n%v\n%v", err, aggregated.Object["status"], again)
			}
			placed := kinds.Placed{Items: items, Divided: rapid.Bool().Draw(t, "divided")}
			if complete, err := i.Conditions(obj, aggregated, placed, time.Now()); err == nil {
				if again, err := i.Conditions(complete, complete, placed, time.Now()); err != nil || again != complete {
					t.Fatalf("finding the conditions again returned a new object: %v\n%v\n%v", err, complete.Object["status"], again)
				}
			}
		}
		if !reflect.DeepEqual(obj.Object, before) || !reflect.DeepEqual(other.Object, otherBefore) {
			t.Fatalf("an argument changed\nfrom %v\nto   %v", before, obj.Object)
		}
	})
}
