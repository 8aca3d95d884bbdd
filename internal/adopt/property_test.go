package adopt_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/adopt"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/interpreter"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/render"
)

// Whatever two or three clusters have, the plan gives each of them exactly that: merged into the live objects it changes
// nothing but the marks of the federation, and every replica stays where it is.
func TestNothingChanges(t *testing.T) {
	p := planner()
	interpreters := interpreter.New(interpreter.Options{})
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(generators))).Draw(t, "kind")
		var objects []*unstructured.Unstructured
		for i := range rapid.IntRange(1, 3).Draw(t, "clusters") {
			objects = append(objects, live(t, kind, i))
		}
		originals := make([]*unstructured.Unstructured, len(objects))
		for i, obj := range objects {
			originals[i] = obj.DeepCopy()
		}
		g := group(objects...)
		item, err := p.Plan(t.Context(), g)
		if err != nil || len(item.Obstacles) > 0 {
			t.Fatalf("err %v, obstacles %v", err, item.Obstacles)
		}
		rendered, err := p.Render(t.Context(), item, item.Template)
		if err != nil {
			t.Fatal(err)
		}
		for i, member := range g.Objects {
			if changes := difference.Between(originals[i], member.Object); len(changes) > 0 {
				t.Fatalf("planning has changed its input: %v", changes)
			}
			if slices.Contains(item.LeftOut, member.Cluster) {
				if item.Targets[i].Replicas != 0 || rendered[member.Cluster] != nil {
					t.Fatalf("cluster %s is left out", member.Cluster)
				}
				continue
			}
			stamped := merge.Stamp(rendered[member.Cluster], merge.Marks{WorkName: "w", WorkID: "id", Cell: "cell"})
			merged, changed, err := render.Merge(t.Context(), interpreters, merge.New(), member.Object, stamped)
			if err != nil || !changed {
				t.Fatalf("changed %v, err %v", changed, err)
			}
			if changes := difference.Between(member.Object, merged); len(changes) > 0 {
				t.Fatalf("cluster %s changes: %v", member.Cluster, changes)
			}
			// A field that the merge would have kept anyway is in the manifest, too.
			if kind != "Job" && item.Scaled {
				want, _, _ := unstructured.NestedInt64(member.Object.Object, "spec", "replicas")
				got, _, _ := unstructured.NestedInt64(rendered[member.Cluster].Object, "spec", "replicas")
				if got != want {
					t.Fatalf("cluster %s gets %d replicas instead of %d", member.Cluster, got, want)
				}
			}
		}
	})
}

// Whatever a member has and whatever the federation wants there, the changes that are shown are exactly those that a write makes: no field changes
// that is not named, and no field is named that stays. A template that is there already and is another is refused, by a field that differs.
func TestShownIsChanged(t *testing.T) {
	p := planner()
	interpreters := interpreter.New(interpreter.Options{})
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(generators))).Draw(t, "kind")
		member, wanted := live(t, kind, 0), live(t, kind, 1)
		pruned, err := interpreters.Prune(wanted)
		if err != nil {
			t.Fatal(err)
		}
		merged, _, err := render.Merge(t.Context(), interpreters, merge.New(), member, merge.Stamp(pruned, merge.Marks{WorkName: "w", WorkID: "id", Cell: "cell"}))
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, change := range difference.Between(member, merged) {
			shown = append(shown, change.Field)
		}
		changed := differing(member, merged)
		for _, field := range changed {
			if !slices.ContainsFunc(shown, func(other string) bool { return related(field, other) }) {
				t.Fatalf("%s changes, but only %v are shown", field, shown)
			}
		}
		for _, field := range shown {
			if !slices.ContainsFunc(changed, func(other string) bool { return related(field, other) }) {
				t.Fatalf("%s is shown, but only %v change", field, changed)
			}
		}

		wanted.SetUID("template")
		item, err := p.Plan(t.Context(), adopt.Group{Key: adopt.KeyOf(member), Objects: []adopt.Object{{Cluster: "a", Object: member}}, Template: wanted})
		if err != nil {
			t.Fatal(err)
		}
		for _, obstacle := range item.Obstacles {
			_, field, names := strings.Cut(obstacle, " of this name already, with another ")
			field, _, _ = strings.Cut(field, "; ")
			if !names || !slices.ContainsFunc(differing(member, wanted), func(other string) bool { return related(field, other) }) {
				t.Fatalf("the obstacle is %q, but these differ: %v", obstacle, differing(member, wanted))
			}
		}
	})
}

// related reports whether a field is another one, or above or below it.
func related(a, b string) bool {
	below := func(field, parent string) bool {
		rest, is := strings.CutPrefix(field, parent)
		return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	return below(a, b) || below(b, a)
}

// differing returns the fields with a value in which two objects differ, without the bookkeeping of API servers and the marks of the federation.
func differing(a, b *unstructured.Unstructured) (fields []string) {
	left, right := map[string]string{}, map[string]string{}
	flatten("", a.Object, left)
	flatten("", b.Object, right)
	for field, value := range left {
		if other, has := right[field]; !has || other != value {
			fields = append(fields, field)
		}
	}
	for field := range right {
		if _, has := left[field]; !has {
			fields = append(fields, field)
		}
	}
	return slices.DeleteFunc(fields, func(field string) bool {
		return related(field, "status") || slices.Contains([]string{"metadata.uid", "metadata.resourceVersion", "metadata.generation"}, field) ||
			strings.Contains(field, "karmada.io/") || strings.Contains(field, "cellplane.io/") || field == "metadata.labels" || field == "metadata.annotations"
	})
}

// flatten records the values at the ends of an object by the names that people know them by.
func flatten(field string, value any, into map[string]string) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		into[field] = "an object"
		for key, item := range v {
			name := key
			switch {
			case strings.ContainsAny(key, "./"):
				name = field + "[" + key + "]"
			case field != "":
				name = field + "." + key
			}
			flatten(name, item, into)
		}
	case []any:
		var order []string
		for i, item := range v {
			name := fmt.Sprint(i)
			if object, ok := item.(map[string]any); ok && object["name"] != nil {
				name = fmt.Sprint(object["name"])
			}
			order = append(order, name)
			flatten(field+"["+name+"]", item, into)
		}
		into[field] = fmt.Sprint(order)
	default:
		into[field] = fmt.Sprint(v)
	}
}

// live returns an object as an API server returns it. The names and what cannot change are the same in all clusters.
func live(t *rapid.T, kind string, cluster int) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: generators[kind](t)}
	obj.SetName("it")
	obj.SetNamespace("shop")
	obj.SetUID("uid")
	obj.SetResourceVersion(fmt.Sprint(cluster + 1))
	obj.SetGeneration(int64(cluster))
	obj.SetLabels(texts(t, "label"))
	annotations := texts(t, "annotation")
	if rapid.Bool().Draw(t, "applied") {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["kubectl.kubernetes.io/last-applied-configuration"] = fmt.Sprint(cluster)
		annotations["deployment.kubernetes.io/revision"] = fmt.Sprint(cluster)
	}
	obj.SetAnnotations(annotations)
	obj.Object["status"] = map[string]any{"observedGeneration": int64(cluster)}
	return obj
}

var word = rapid.SampledFrom([]string{"a", "b", "c"})

// texts has keys that need escaping in a JSON pointer.
func texts(t *rapid.T, what string) map[string]string {
	m := rapid.MapOf(rapid.SampledFrom([]string{"app", "example.com/a~b", "team"}), word).Draw(t, what)
	if len(m) == 0 {
		return nil
	}
	return m
}

func entries(t *rapid.T, what string) map[string]any {
	m := map[string]any{}
	for key, value := range texts(t, what) {
		m[key] = value
	}
	return m
}

func words(t *rapid.T, what string) []any {
	list := []any{}
	for _, text := range rapid.SliceOfN(word, 1, 3).Draw(t, what) {
		list = append(list, text)
	}
	return list
}

func podTemplate(t *rapid.T) map[string]any {
	var containers []any
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		image := rapid.SampledFrom([]string{"web:1", "web:2", "registry.example:5000/team/web:1", "web", "web@sha256:" + fmt.Sprintf("%064d", 7), "Not An Image"}).Draw(t, "image")
		container := map[string]any{"name": fmt.Sprint("c", i), "image": image}
		if rapid.Bool().Draw(t, "has args") {
			container["args"] = words(t, "args")
		}
		var env []any
		for _, name := range rapid.SliceOfNDistinct(word, 0, 3, rapid.ID[string]).Draw(t, "env") {
			env = append(env, map[string]any{"name": name, "value": word.Draw(t, "value")})
		}
		if len(env) > 0 {
			container["env"] = env
		}
		if rapid.Bool().Draw(t, "has limits") {
			container["resources"] = map[string]any{"limits": map[string]any{"cpu": rapid.SampledFrom([]string{"1", "500m"}).Draw(t, "cpu")}}
		}
		containers = append(containers, container)
	}
	metadata := map[string]any{"labels": map[string]any{"app": "it"}, "creationTimestamp": nil}
	if rapid.Bool().Draw(t, "restarted") {
		metadata["annotations"] = map[string]any{"kubectl.kubernetes.io/restartedAt": word.Draw(t, "when")}
	}
	return map[string]any{"metadata": metadata, "spec": map[string]any{"containers": containers, "terminationGracePeriodSeconds": rapid.Int64Range(1, 2).Draw(t, "grace")}}
}

func replicated(t *rapid.T, kind string) map[string]any {
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "spec": map[string]any{
		"replicas": rapid.Int64Range(0, 9).Draw(t, "replicas"), "template": podTemplate(t),
		"selector": map[string]any{"matchLabels": map[string]any{"app": "it"}},
	}}
}

var generators = map[string]func(t *rapid.T) map[string]any{
	"Deployment": func(t *rapid.T) map[string]any {
		root := replicated(t, "Deployment")
		if rapid.Bool().Draw(t, "paused") {
			root["spec"].(map[string]any)["paused"] = true
		}
		return root
	},
	"StatefulSet": func(t *rapid.T) map[string]any {
		root := replicated(t, "StatefulSet")
		root["spec"].(map[string]any)["updateStrategy"] = map[string]any{"rollingUpdate": map[string]any{"partition": rapid.Int64Range(0, 3).Draw(t, "partition")}, "type": "RollingUpdate"}
		return root
	},
	"Service": func(t *rapid.T) map[string]any {
		kind := rapid.SampledFrom([]string{"ClusterIP", "NodePort", "LoadBalancer"}).Draw(t, "type")
		var ports []any
		for i := range rapid.IntRange(1, 2).Draw(t, "ports") {
			port := map[string]any{"name": fmt.Sprint("p", i), "port": int64(80 + i), "protocol": "TCP", "targetPort": rapid.Int64Range(1, 2).Draw(t, "target")}
			if kind != "ClusterIP" {
				port["nodePort"] = rapid.Int64Range(30000, 30002).Draw(t, "node port")
			}
			ports = append(ports, port)
		}
		address := fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 9).Draw(t, "address"))
		spec := map[string]any{"type": kind, "ports": ports, "clusterIP": address, "clusterIPs": []any{address}, "selector": map[string]any{"app": word.Draw(t, "app")}}
		if kind == "LoadBalancer" {
			spec["healthCheckNodePort"] = rapid.Int64Range(31000, 31009).Draw(t, "health")
		}
		return map[string]any{"apiVersion": "v1", "kind": "Service", "spec": spec}
	},
	"ConfigMap": func(t *rapid.T) map[string]any {
		root := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": entries(t, "data")}
		if rapid.Bool().Draw(t, "large") {
			for i := range 300 {
				root["data"].(map[string]any)[fmt.Sprint("key", i)] = word.Draw(t, "value")
			}
		}
		return root
	},
	"Job": func(t *rapid.T) map[string]any {
		template := podTemplate(t)
		uid := fmt.Sprint("uid", rapid.IntRange(0, 99).Draw(t, "uid"))
		template["metadata"].(map[string]any)["labels"] = map[string]any{"app": "it", "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid, "job-name": "it"}
		return map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{
			"parallelism": rapid.Int64Range(0, 4).Draw(t, "parallelism"), "completions": rapid.Int64Range(1, 9).Draw(t, "completions"), "template": template,
			"selector": map[string]any{"matchLabels": map[string]any{"batch.kubernetes.io/controller-uid": uid}},
		}}
	},
	"Widget": func(t *rapid.T) map[string]any {
		return map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{
			"size": rapid.Float64Range(0, 2).Draw(t, "size"), "flags": rapid.SampledFrom([]any{nil, map[string]any{}, map[string]any{"on": true}, []any{}, []any{int64(1)}, "on", false}).Draw(t, "flags"),
			"parts": words(t, "parts"), "": word.Draw(t, "empty key"),
		}}
	},
}
