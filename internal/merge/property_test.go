package merge_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/internal/merge"
)

// part is what one side, federation or member, wants of a Deployment. The two sides use different names, so that what
// the object must look like in the end is simply both parts together.
type part struct {
	labels     map[string]string
	settings   map[string]int64 // fields of the spec
	containers map[string]containerPart
}

type containerPart struct {
	image  string // empty if the container is the other side's
	args   []string
	env    map[string]string
	limits map[string]string
	ports  []int64
}

func drawFederation(t *rapid.T, label string) part {
	return drawPart(t, label, []string{"a", "b", "c"}, []string{"minReadySeconds", "progressDeadlineSeconds", "replicas"}, true)
}

func drawPart(t *rapid.T, label string, words, settings []string, withImage bool) part {
	drawMap := func(label string) map[string]string {
		return rapid.MapOfN(rapid.SampledFrom(words), rapid.SampledFrom([]string{"1", "2", "1000m"}), 0, 3).Draw(t, label)
	}
	p := part{
		labels:     drawMap(label + " labels"),
		settings:   rapid.MapOfN(rapid.SampledFrom(settings), rapid.Int64Range(1, 3), 0, 2).Draw(t, label+" settings"),
		containers: map[string]containerPart{},
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(words), 1, 3, rapid.ID[string]).Draw(t, label+" containers") {
		c := containerPart{env: drawMap(label + " env"), limits: drawMap(label + " limits")}
		if withImage {
			c.image = rapid.SampledFrom([]string{"v1", "v2"}).Draw(t, label+" image")
			c.args = rapid.SliceOfN(rapid.SampledFrom([]string{"-x", "-y"}), 0, 2).Draw(t, label+" args")
			c.ports = rapid.SliceOfNDistinct(rapid.Int64Range(1, 3), 0, 3, rapid.ID[int64]).Draw(t, label+" ports")
		}
		p.containers[name] = c
	}
	return p
}

// drawMember draws what a member adds: sidecars of its own, and something to containers of the federation.
func drawMember(t *rapid.T, federation part) part {
	p := drawPart(t, "member", []string{"m1", "m2"}, []string{"revisionHistoryLimit"}, true)
	for _, name := range slices.Sorted(maps.Keys(federation.containers)) {
		if rapid.Bool().Draw(t, "member touches "+name) {
			added := drawPart(t, "member in "+name, []string{"m1", "m2"}, []string{"revisionHistoryLimit"}, false)
			p.containers[name] = added.containers[slices.Sorted(maps.Keys(added.containers))[0]]
		}
	}
	return p
}

// write puts a part into an object, beside what is there.
func (p part) write(obj map[string]any) {
	for key, value := range p.labels {
		mustSet(obj, value, "metadata", "labels", key)
	}
	for name, value := range p.settings {
		mustSet(obj, value, "spec", name)
	}
	pod := at(obj, "spec", "template", "spec").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		list, _ := pod["containers"].([]any)
		container, _ := item(list, name).(map[string]any)
		if container == nil {
			if p.containers[name].image == "" {
				continue // its container is gone
			}
			container = map[string]any{"name": name}
			pod["containers"] = append(list, container)
		}
		p.containers[name].write(container)
	}
}

func (c containerPart) write(container map[string]any) {
	if c.image != "" {
		container["image"] = c.image
	}
	for _, arg := range c.args {
		args, _ := container["args"].([]any)
		container["args"] = append(args, arg)
	}
	for _, key := range slices.Sorted(maps.Keys(c.env)) {
		env, _ := container["env"].([]any)
		container["env"] = append(env, map[string]any{"name": key, "value": c.env[key]})
	}
	for key, value := range c.limits {
		mustSet(container, value, "resources", "limits", key)
	}
	for _, port := range c.ports {
		ports, _ := container["ports"].([]any)
		container["ports"] = append(ports, map[string]any{"containerPort": port})
	}
}

func bare() map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "namespace": "shop", "labels": map[string]any{"app": "web"}},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": map[string]any{}},
		},
	}
}

func (p part) manifest() *unstructured.Unstructured {
	obj := bare()
	p.write(obj)
	return merge.Stamp(&unstructured.Unstructured{Object: obj}, merge.Marks{})
}

// normalised returns an object for comparison: defaulted, keyed lists in one order, without managed fields and our labels and annotations.
func normalised(obj map[string]any) map[string]any {
	obj = runtime.DeepCopyJSON(obj)
	defaultDeployment(obj)
	unstructured.RemoveNestedField(obj, "metadata", "managedFields")
	unstructured.RemoveNestedField(obj, "metadata", "annotations")
	unstructured.RemoveNestedField(obj, "metadata", "labels", "karmada.io/managed")
	sortBy := func(value any, key string) {
		list, _ := value.([]any)
		slices.SortFunc(list, func(a, b any) int {
			return cmp.Compare(fmt.Sprint(a.(map[string]any)[key]), fmt.Sprint(b.(map[string]any)[key]))
		})
	}
	containers := at(obj, "spec", "template", "spec", "containers")
	sortBy(containers, "name")
	list, _ := containers.([]any)
	for _, container := range list {
		c := container.(map[string]any)
		sortBy(c["env"], "name")
		sortBy(c["ports"], "containerPort")
		limits, _ := at(c, "resources", "limits").(map[string]any)
		for key, value := range limits {
			if value == "1000m" {
				limits[key] = "1" // equivalent, so an update keeps it
			}
		}
	}
	return obj
}

// Whatever the old template, the additions of the member and the new template: the result is the new template and the
// additions, nothing else, and a second update changes nothing.
func TestUpdateGivesTemplateAndAdditions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawFederation(t, "before")
		after := drawFederation(t, "after")
		additions := drawMember(t, before)

		m := newDeploymentMember()
		m.write(t, merge.FieldManager, before.manifest())
		if m.update(t, before.manifest()) {
			t.Fatal("wrote right after the create")
		}
		m.edit(t, "member", additions.write)
		if m.update(t, before.manifest()) {
			t.Fatal("wrote because of additions of the member")
		}
		m.update(t, after.manifest())

		want := after.manifest().Object
		additions.write(want)
		if diff := gocmp.Diff(normalised(want), normalised(m.live().Object)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if m.update(t, after.manifest()) {
			t.Fatal("wrote a second time")
		}
		// The way back restores the original.
		m.update(t, before.manifest())
		want = before.manifest().Object
		kept := additions
		kept.containers = maps.Clone(additions.containers)
		for name, c := range kept.containers {
			if _, survived := after.containers[name]; c.image == "" && !survived {
				delete(kept.containers, name)
			}
		}
		kept.write(want)
		if diff := gocmp.Diff(normalised(want), normalised(m.live().Object)); diff != "" {
			t.Fatalf("on the way back (-want +got):\n%s", diff)
		}
	})
}

// Whatever a member does to fields of the federation, an update restores them and removes nothing else.
func TestUpdateRepairsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		federation := drawFederation(t, "federation")
		drift := drawFederation(t, "drift")

		m := newDeploymentMember()
		m.write(t, merge.FieldManager, federation.manifest())
		m.edit(t, "member", func(obj map[string]any) {
			if rapid.Bool().Draw(t, "remove first") {
				pod := at(obj, "spec", "template", "spec").(map[string]any)
				pod["containers"] = pod["containers"].([]any)[1:]
			}
			for _, container := range podContainers(obj) {
				delete(container, "args")
				delete(container, "ports")
				delete(container, "env")
			}
			drift.write(obj)
		})
		drifted := m.live()
		merged, changed, err := merge.Update(drifted, federation.manifest())
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			m.write(t, merge.FieldManager, merged)
		}
		live := m.live()
		assertContains(t, live.Object["spec"], federation.manifest().Object["spec"], "spec")
		for name := range drift.containers {
			if at(live.Object, "spec", "template", "spec", "containers", name) == nil {
				t.Fatalf("container %s is gone", name)
			}
		}
		if m.update(t, federation.manifest()) {
			t.Fatal("wrote a second time")
		}
	})
}

func podContainers(obj map[string]any) []map[string]any {
	var containers []map[string]any
	list, _ := at(obj, "spec", "template", "spec", "containers").([]any)
	for _, container := range list {
		containers = append(containers, container.(map[string]any))
	}
	return containers
}

// assertContains is an independent, slow check that live has everything that was asked for.
func assertContains(t failer, live, want any, path string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		have, _ := live.(map[string]any)
		for key, value := range want {
			assertContains(t, have[key], value, path+"."+key)
		}
	case []any:
		have, _ := live.([]any)
		for i, wanted := range want {
			object, isObject := wanted.(map[string]any)
			if !isObject {
				if i >= len(have) || have[i] != wanted {
					t.Fatalf("%s is %v, want %v", path, live, want)
				}
				continue
			}
			key := "name"
			if object["containerPort"] != nil {
				key = "containerPort"
			}
			found := slices.IndexFunc(have, func(candidate any) bool { return candidate.(map[string]any)[key] == object[key] })
			if found < 0 {
				t.Fatalf("%s lacks %v", path, object[key])
			}
			assertContains(t, have[found], wanted, fmt.Sprint(path, "[", object[key], "]"))
		}
	default:
		if live != want && !(live == "1" && want == "1000m") && !(live == "1000m" && want == "1") {
			t.Fatalf("%s is %v, want %v", path, live, want)
		}
	}
}
