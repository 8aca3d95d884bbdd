package merge_test

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/merge"
)

var builtInTypes = applyconfigurations.NewTypeConverter(scheme.Scheme)

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// member tracks the managed fields with the code of API servers and sets defaults as they do: first, so that the writer
// owns the defaults.
type member struct {
	fields   managedfieldstest.TestFieldManager
	defaults func(map[string]any)
}

func newMember(types managedfields.TypeConverter, gvk schema.GroupVersionKind, defaults func(map[string]any)) *member {
	return &member{fields: managedfieldstest.NewTestFieldManager(types, gvk), defaults: defaults}
}

// newDeploymentMember is a member that knows Deployments and some of their defaults.
func newDeploymentMember() *member {
	return newMember(builtInTypes, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, defaultDeployment)
}

func (m *member) write(t failer, manager string, obj *unstructured.Unstructured) {
	t.Helper()
	obj = obj.DeepCopy()
	if m.defaults != nil {
		m.defaults(obj.Object)
	}
	if err := m.fields.Update(obj, manager); err != nil {
		t.Fatalf("%s writes: %v", manager, err)
	}
}

func (m *member) live() *unstructured.Unstructured {
	return m.fields.Live().(*unstructured.Unstructured)
}

// edit changes the live object as another manager.
func (m *member) edit(t failer, manager string, change func(obj map[string]any)) {
	t.Helper()
	obj := m.live()
	change(obj.Object)
	m.write(t, manager, obj)
}

// update does what the engine does and reports whether it wrote.
func (m *member) update(t failer, desired *unstructured.Unstructured) bool {
	t.Helper()
	live := m.live()
	before := live.DeepCopy()
	merged, changed, err := merge.Update(live, desired)
	if err != nil {
		t.Fatal(err)
	}
	if !sameJSON(t, before, live) {
		t.Fatal("Update modified its input")
	}
	if !changed {
		if merged != live {
			t.Fatal("nothing changed, but Update returned another object")
		}
		return false
	}
	m.write(t, merge.FieldManager, merged)
	return true
}

func sameJSON(t failer, a, b *unstructured.Unstructured) bool {
	t.Helper()
	x, err := a.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

func object(t failer, manifest string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return obj
}

// at returns what is at a path of field names, list indices and, in lists of objects, names of items.
func at(value any, path ...any) any {
	for _, step := range path {
		switch container := value.(type) {
		case map[string]any:
			value = container[step.(string)]
		case []any:
			value = item(container, step)
		default:
			return nil
		}
	}
	return value
}

func item(list []any, step any) any {
	if i, ok := step.(int); ok {
		if i < len(list) {
			return list[i]
		}
		return nil
	}
	for _, candidate := range list {
		if object, ok := candidate.(map[string]any); ok && object["name"] == step {
			return candidate
		}
	}
	return nil
}

// itemNames returns the names of the objects in a list.
func itemNames(value any) []string {
	var names []string
	list, _ := value.([]any)
	for _, item := range list {
		name, _ := item.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	return names
}

func defaultDeployment(obj map[string]any) {
	spec, _ := obj["spec"].(map[string]any)
	setDefault(spec, "replicas", int64(1))
	setDefault(spec, "revisionHistoryLimit", int64(10))
	setDefault(spec, "strategy", map[string]any{})
	strategy, _ := spec["strategy"].(map[string]any)
	setDefault(strategy, "type", "RollingUpdate")
	if strategy["type"] == "RollingUpdate" {
		setDefault(strategy, "rollingUpdate", map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"})
	}
	pod, _ := at(spec, "template", "spec").(map[string]any)
	setDefault(pod, "restartPolicy", "Always")
	setDefault(pod, "securityContext", map[string]any{})
	containers, _ := pod["containers"].([]any)
	for _, container := range containers {
		c := container.(map[string]any)
		setDefault(c, "terminationMessagePath", "/dev/termination-log")
		setDefault(c, "imagePullPolicy", "IfNotPresent")
		setDefault(c, "resources", map[string]any{})
		ports, _ := c["ports"].([]any)
		for _, port := range ports {
			setDefault(port.(map[string]any), "protocol", "TCP")
		}
	}
	volumes, _ := pod["volumes"].([]any)
	for _, volume := range volumes {
		if source, ok := volume.(map[string]any)["configMap"].(map[string]any); ok {
			setDefault(source, "defaultMode", int64(420))
		}
	}
}

func setDefault(obj map[string]any, field string, value any) {
	if obj != nil && obj[field] == nil {
		obj[field] = value
	}
}

func mustSet(obj map[string]any, value any, path ...string) {
	if err := unstructured.SetNestedField(obj, value, path...); err != nil {
		panic(err)
	}
}
