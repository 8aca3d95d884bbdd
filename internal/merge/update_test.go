package merge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/internal/merge"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {app: web, tier: front}
  annotations: {note: hello}
spec:
  replicas: 3
  minReadySeconds: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {creationTimestamp: null, labels: {app: web}}
    spec:
      serviceAccountName: shop
      nodeSelector: {disk: ssd, zone: a}
      tolerations: [{key: shop, operator: Exists}]
      volumes:
      - {name: data, emptyDir: {}}
      containers:
      - name: app
        image: app:v1
        args: [-a, -b]
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
        ports: [{containerPort: 80}, {containerPort: 443, name: tls}]
        resources: {limits: {cpu: 1000m, memory: 1Gi}}
      - {name: logger, image: logger:v1}
`

func pod(path ...any) []any { return append([]any{"spec", "template", "spec"}, path...) }

// edited returns the manifest with a change.
func edited(t failer, manifest string, change func(obj map[string]any)) *unstructured.Unstructured {
	t.Helper()
	obj := object(t, manifest)
	change(obj.Object)
	return obj
}

func podOf(obj map[string]any) map[string]any { return at(obj, pod()...).(map[string]any) }
func containerOf(obj map[string]any) map[string]any {
	return at(obj, pod("containers", "app")...).(map[string]any)
}

// created is a member that has web unchanged since its creation.
func created(t *testing.T) *member {
	t.Helper()
	m := newDeploymentMember()
	// The engine stamps a manifest before it creates the object.
	m.write(t, merge.FieldManager, merge.Stamp(object(t, web), merge.Marks{}))
	return m
}

func desired(t failer, change func(obj map[string]any)) *unstructured.Unstructured {
	t.Helper()
	return merge.Stamp(edited(t, web, change), merge.Marks{})
}

func unchanged(map[string]any) {}

func TestNothingToDo(t *testing.T) {
	for name, change := range map[string]func(obj map[string]any){
		"as written": unchanged,
		"defaults and a sidecar of the member": func(obj map[string]any) {
			p := podOf(obj)
			p["containers"] = append(p["containers"].([]any), map[string]any{"name": "istio", "image": "istio"})
			p["hostNetwork"] = true
		},
		"same quantity":          func(obj map[string]any) { mustSet(containerOf(obj), "1", "resources", "limits", "cpu") },
		"number decoded as real": func(obj map[string]any) { mustSet(obj, 3.0, "spec", "replicas") },
		"a toleration more": func(obj map[string]any) {
			p := podOf(obj)
			p["tolerations"] = append(p["tolerations"].([]any), map[string]any{"key": "member", "operator": "Exists"})
		},
		"status": func(obj map[string]any) { obj["status"] = map[string]any{"replicas": int64(3)} },
		"labels and annotations of the member": func(obj map[string]any) {
			mustSet(obj, "x", "metadata", "labels", "member")
			mustSet(obj, "1", "metadata", "annotations", "deployment.kubernetes.io/revision")
		},
		"an env var in front": func(obj map[string]any) {
			c := containerOf(obj)
			c["env"] = append([]any{map[string]any{"name": "M", "value": "m"}}, c["env"].([]any)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := created(t)
			m.edit(t, "member", change)
			if m.update(t, desired(t, unchanged)) {
				t.Errorf("wrote although nothing had to change")
			}
		})
	}
}

func TestEmptyAndNullAskForNothing(t *testing.T) {
	manifest := merge.Stamp(edited(t, web, func(obj map[string]any) {
		p := podOf(obj)
		p["imagePullSecrets"], p["affinity"], p["dnsConfig"] = []any{}, map[string]any{}, nil
	}), merge.Marks{})
	m := newDeploymentMember()
	stored := manifest.DeepCopy() // without fields that API servers drop
	p := podOf(stored.Object)
	delete(p, "imagePullSecrets")
	delete(p, "affinity")
	delete(p, "dnsConfig")
	m.write(t, merge.FieldManager, stored)
	if m.update(t, manifest) {
		t.Error("wrote because of a field that an API server drops")
	}
}

func TestDriftIsRepaired(t *testing.T) {
	for name, change := range map[string]func(obj map[string]any){
		"value changed":        func(obj map[string]any) { mustSet(obj, int64(9), "spec", "replicas") },
		"field removed":        func(obj map[string]any) { delete(podOf(obj), "serviceAccountName") },
		"label changed":        func(obj map[string]any) { mustSet(obj, "x", "metadata", "labels", "app") },
		"label removed":        func(obj map[string]any) { unstructured.RemoveNestedField(obj, "metadata", "labels", "tier") },
		"container removed":    func(obj map[string]any) { p := podOf(obj); p["containers"] = p["containers"].([]any)[:1] },
		"containers reordered": func(obj map[string]any) { slices.Reverse(podOf(obj)["containers"].([]any)) },
		"argument added":       func(obj map[string]any) { c := containerOf(obj); c["args"] = append(c["args"].([]any), "-c") },
		"image changed":        func(obj map[string]any) { containerOf(obj)["image"] = "evil" },
		"toleration removed":   func(obj map[string]any) { delete(podOf(obj), "tolerations") },
		"quantity changed":     func(obj map[string]any) { mustSet(containerOf(obj), "2", "resources", "limits", "cpu") },
	} {
		t.Run(name, func(t *testing.T) {
			m := created(t)
			before := m.live()
			m.edit(t, "member", change)
			if !m.update(t, desired(t, unchanged)) {
				t.Fatal("did not write")
			}
			if diff := cmp.Diff(withoutBooks(before), withoutBooks(m.live())); diff != "" {
				t.Errorf("not restored (-want +got):\n%s", diff)
			}
			if m.update(t, desired(t, unchanged)) {
				t.Error("wrote again")
			}
		})
	}
}

func withoutBooks(obj *unstructured.Unstructured) map[string]any {
	obj = obj.DeepCopy()
	obj.SetManagedFields(nil)
	return obj.Object
}

func TestTemplateChanges(t *testing.T) {
	none := any(nil)
	type want struct {
		path  []any
		value any
	}
	for name, tt := range map[string]struct {
		member   func(obj map[string]any) // what somebody in the member changed before, if anything
		template func(obj map[string]any)
		want     []want
	}{
		"field changed": {
			template: func(obj map[string]any) { containerOf(obj)["image"] = "app:v2" },
			want:     []want{{pod("containers", "app", "image"), "app:v2"}, {pod("containers", "app", "imagePullPolicy"), "IfNotPresent"}},
		},
		"field removed": {
			template: func(obj map[string]any) {
				unstructured.RemoveNestedField(obj, "spec", "minReadySeconds")
				delete(podOf(obj), "serviceAccountName")
			},
			want: []want{{[]any{"spec", "minReadySeconds"}, none}, {pod("serviceAccountName"), none}, {[]any{"spec", "replicas"}, int64(3)}},
		},
		"map entry removed": {
			template: func(obj map[string]any) {
				unstructured.RemoveNestedField(containerOf(obj), "resources", "limits", "memory")
			},
			want: []want{{pod("containers", "app", "resources", "limits"), map[string]any{"cpu": "1000m"}}},
		},
		"map removed": {
			template: func(obj map[string]any) { delete(containerOf(obj), "resources") },
			want:     []want{{pod("containers", "app", "resources", "limits"), none}},
		},
		"map removed, the member has its own entry": {
			member:   func(obj map[string]any) { mustSet(containerOf(obj), "1", "resources", "limits", "gpu") },
			template: func(obj map[string]any) { delete(containerOf(obj), "resources") },
			want:     []want{{pod("containers", "app", "resources", "limits"), map[string]any{"gpu": "1"}}},
		},
		"atomic map entry removed": {
			template: func(obj map[string]any) { unstructured.RemoveNestedField(podOf(obj), "nodeSelector", "zone") },
			want:     []want{{pod("nodeSelector"), map[string]any{"disk": "ssd"}}},
		},
		"atomic map removed": {
			template: func(obj map[string]any) { delete(podOf(obj), "nodeSelector") },
			want:     []want{{pod("nodeSelector"), none}},
		},
		"atomic list changed": {
			template: func(obj map[string]any) { containerOf(obj)["args"] = []any{"-b"} },
			want:     []want{{pod("containers", "app", "args"), []any{"-b"}}},
		},
		"atomic list removed": {
			template: func(obj map[string]any) { delete(containerOf(obj), "args") },
			want:     []want{{pod("containers", "app", "args"), none}},
		},
		"list item removed": {
			template: func(obj map[string]any) { p := podOf(obj); p["containers"] = p["containers"].([]any)[:1] },
			want:     []want{{pod("containers", "logger"), none}},
		},
		"list item removed that the member changed": {
			member:   func(obj map[string]any) { at(obj, pod("containers", "logger")...).(map[string]any)["image"] = "mine" },
			template: func(obj map[string]any) { p := podOf(obj); p["containers"] = p["containers"].([]any)[:1] },
			want:     []want{{pod("containers", "logger"), none}},
		},
		"list of items removed": {
			template: func(obj map[string]any) { delete(containerOf(obj), "env") },
			want:     []want{{pod("containers", "app", "env"), none}},
		},
		"list of items removed, the member has its own": {
			member: func(obj map[string]any) {
				c := containerOf(obj)
				c["env"] = append(c["env"].([]any), map[string]any{"name": "M", "value": "m"})
			},
			template: func(obj map[string]any) { delete(containerOf(obj), "env") },
			want:     []want{{pod("containers", "app", "env"), []any{map[string]any{"name": "M", "value": "m"}}}},
		},
		"port removed and port changed, by a key with a default": {
			template: func(obj map[string]any) {
				containerOf(obj)["ports"] = []any{map[string]any{"containerPort": int64(443), "name": "https"}}
			},
			want: []want{{pod("containers", "app", "ports"), []any{
				map[string]any{"containerPort": int64(443), "name": "https", "protocol": "TCP"},
			}}},
		},
		"what the member added stays": {
			member: func(obj map[string]any) {
				p := podOf(obj)
				p["containers"] = append(p["containers"].([]any), map[string]any{"name": "istio", "image": "istio"})
				mustSet(obj, true, "spec", "paused")
				mustSet(containerOf(obj), "/x", "workingDir")
				containerOf(obj)["ports"] = append(containerOf(obj)["ports"].([]any), map[string]any{"containerPort": int64(9090)})
			},
			template: func(obj map[string]any) { containerOf(obj)["image"] = "app:v2" },
			want: []want{
				{pod("containers", "istio", "image"), "istio"}, {[]any{"spec", "paused"}, true},
				{pod("containers", "app", "workingDir"), "/x"}, {pod("containers", "app", "image"), "app:v2"},
				{pod("containers", "app", "ports", 2, "containerPort"), int64(9090)},
			},
		},
		"null asks for nothing": {
			member:   func(obj map[string]any) { podOf(obj)["hostname"] = "h" },
			template: func(obj map[string]any) { podOf(obj)["hostname"] = nil },
			want:     []want{{pod("hostname"), "h"}},
		},
		"the federation wins where both changed": {
			member:   func(obj map[string]any) { containerOf(obj)["image"] = "app:hotfix" },
			template: func(obj map[string]any) { containerOf(obj)["image"] = "app:v2" },
			want:     []want{{pod("containers", "app", "image"), "app:v2"}},
		},
		"a default that the member changed stays": {
			member:   func(obj map[string]any) { mustSet(obj, int64(2), "spec", "revisionHistoryLimit") },
			template: func(obj map[string]any) { containerOf(obj)["image"] = "app:v2" },
			want:     []want{{[]any{"spec", "revisionHistoryLimit"}, int64(2)}},
		},
		"a toleration of the member stays": {
			member: func(obj map[string]any) {
				p := podOf(obj)
				p["tolerations"] = append(p["tolerations"].([]any), map[string]any{"key": "member"})
			},
			template: func(obj map[string]any) {
				podOf(obj)["tolerations"] = []any{map[string]any{"key": "new"}, map[string]any{"key": "shop", "operator": "Exists"}}
			},
			want: []want{{pod("tolerations"), []any{
				map[string]any{"key": "new"}, map[string]any{"key": "shop", "operator": "Exists"}, map[string]any{"key": "member"},
			}}},
		},
		"a toleration removed": {
			template: func(obj map[string]any) { podOf(obj)["tolerations"] = []any{map[string]any{"key": "new"}} },
			want:     []want{{pod("tolerations"), []any{map[string]any{"key": "new"}}}},
		},
		"strategy changed, its defaults go": {
			template: func(obj map[string]any) { mustSet(obj, "Recreate", "spec", "strategy", "type") },
			want:     []want{{[]any{"spec", "strategy"}, map[string]any{"type": "Recreate"}}},
		},
		"volume source changed": {
			template: func(obj map[string]any) {
				podOf(obj)["volumes"] = []any{map[string]any{"name": "data", "configMap": map[string]any{"name": "cm"}}}
			},
			want: []want{{pod("volumes", "data"), map[string]any{"name": "data", "configMap": map[string]any{"name": "cm", "defaultMode": int64(420)}}}},
		},
		"labels and annotations": {
			member: func(obj map[string]any) {
				mustSet(obj, "m", "metadata", "labels", "member")
				mustSet(obj, "m", "metadata", "annotations", "member")
			},
			template: func(obj map[string]any) {
				mustSet(obj, map[string]any{"app": "web2"}, "metadata", "labels")
				unstructured.RemoveNestedField(obj, "metadata", "annotations")
			},
			want: []want{
				{[]any{"metadata", "labels", "app"}, "web2"}, {[]any{"metadata", "labels", "tier"}, none},
				{[]any{"metadata", "labels", "member"}, "m"}, {[]any{"metadata", "labels", "karmada.io/managed"}, "true"},
				{[]any{"metadata", "annotations", "note"}, none}, {[]any{"metadata", "annotations", "member"}, "m"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := created(t)
			if tt.member != nil {
				m.edit(t, "member", tt.member)
			}
			if !m.update(t, desired(t, tt.template)) {
				t.Fatal("did not write")
			}
			for _, want := range tt.want {
				if diff := cmp.Diff(want.value, at(m.live().Object, want.path...)); diff != "" {
					t.Errorf("%v (-want +got):\n%s", want.path, diff)
				}
			}
			if m.update(t, desired(t, tt.template)) {
				t.Error("wrote again")
			}
		})
	}
}

// A field that another manager applied as well is not ours alone, and stays.
func TestSharedFieldsStay(t *testing.T) {
	m := created(t)
	shared := object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {minReadySeconds: 5, template: {spec: {nodeSelector: {disk: ssd, zone: a}, containers: [{name: logger, image: "logger:v1"}]}}}`)
	if err := m.fields.Apply(shared, "other", false); err != nil {
		t.Fatal(err)
	}
	m.update(t, desired(t, func(obj map[string]any) {
		unstructured.RemoveNestedField(obj, "spec", "minReadySeconds")
		p := podOf(obj)
		p["containers"] = p["containers"].([]any)[:1]
		p["nodeSelector"] = map[string]any{"disk": "nvme"}
	}))
	live := m.live().Object
	if diff := cmp.Diff(map[string]any{"disk": "nvme", "zone": "a"}, at(live, pod("nodeSelector")...)); diff != "" {
		t.Errorf("nodeSelector (-want +got):\n%s", diff)
	}
	if got := at(live, "spec", "minReadySeconds"); got != int64(5) {
		t.Errorf("minReadySeconds is %v, want the other's 5", got)
	}
	if got := at(live, pod("containers", "logger", "image")...); got != "logger:v1" {
		t.Errorf("the other's container has image %v", got)
	}
}

func TestOrderOfItems(t *testing.T) {
	for name, tt := range map[string]struct{ live, desired, want string }{
		"new at the end":            {"a b", "a b c", "a b c"},
		"new in between":            {"a b", "a c b", "a c b"},
		"reordered":                 {"a b", "b a", "b a"},
		"member's in front stays":   {"M a b", "b a", "M b a"},
		"member's follows its item": {"a M b", "b c a", "b c a M"},
		"member's at the end":       {"a b M", "a b c", "a b M c"},
		"member's behind a removed": {"a b M", "a", "a M"},
		"all removed":               {"a M b", "", "M"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := func(names string) *unstructured.Unstructured {
				return merge.Stamp(edited(t, web, func(obj map[string]any) {
					env := []any{}
					for _, name := range strings.Fields(names) {
						env = append(env, map[string]any{"name": name, "value": "x"})
					}
					containerOf(obj)["env"] = env
				}), merge.Marks{})
			}
			m := newDeploymentMember()
			m.write(t, merge.FieldManager, manifest(strings.ReplaceAll(tt.live, "M", "")))
			m.edit(t, "member", func(obj map[string]any) {
				containerOf(obj)["env"] = containerOf(manifest(tt.live).Object)["env"]
			})
			m.update(t, manifest(tt.desired))
			if got := strings.Join(itemNames(at(m.live().Object, pod("containers", "app", "env")...)), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if m.update(t, manifest(tt.desired)) {
				t.Error("wrote again")
			}
		})
	}
}

// API servers accept two items with the same key, such as one port under two names.
func TestDuplicateKeys(t *testing.T) {
	ports := func(names ...string) func(obj map[string]any) {
		return func(obj map[string]any) {
			var list []any
			for _, name := range names {
				list = append(list, map[string]any{"containerPort": int64(80), "name": name})
			}
			containerOf(obj)["ports"] = list
		}
	}
	live := merge.Stamp(edited(t, web, ports("a", "b")), merge.Marks{})
	defaultDeployment(live.Object)
	if _, changed, err := merge.Update(live, desired(t, ports("a", "b"))); changed || err != nil {
		t.Errorf("changed %v, err %v, want neither", changed, err)
	}
	for _, names := range [][]string{{"a", "c"}, {"a"}, {"a", "b", "c"}} {
		merged, changed, err := merge.Update(live, desired(t, ports(names...)))
		if !changed || err != nil {
			t.Fatalf("changed %v, err %v", changed, err)
		}
		if got := itemNames(at(merged.Object, pod("containers", "app", "ports")...)); !slices.Equal(got, names) {
			t.Errorf("got ports %v, want %v", got, names)
		}
	}
}

// In older members some lists are one value that newer ones merge item by item. Their items are ours nevertheless.
func TestListOwnedAsOneValue(t *testing.T) {
	live := merge.Stamp(object(t, web), merge.Marks{})
	mustSet(live.Object, []any{map[string]any{"manager": "cellplane", "apiVersion": "apps/v1", "fieldsV1": map[string]any{
		"f:spec": map[string]any{"f:template": map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{}}}},
	}}}, "metadata", "managedFields")
	merged, _, err := merge.Update(live, desired(t, func(obj map[string]any) { p := podOf(obj); p["containers"] = p["containers"].([]any)[:1] }))
	if err != nil {
		t.Fatal(err)
	}
	if got := itemNames(at(merged.Object, pod("containers")...)); !slices.Equal(got, []string{"app"}) {
		t.Errorf("containers are %v, want the removed one gone", got)
	}
}

func TestMetadataOfTheMemberIsKept(t *testing.T) {
	m := created(t)
	live := m.live()
	live.SetResourceVersion("42")
	live.SetUID("u")
	live.SetGeneration(7)
	live.SetFinalizers([]string{"member/finalizer"})
	live.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "x", UID: "y"}})
	live.SetCreationTimestamp(metav1.Now())
	live.Object["status"] = map[string]any{"replicas": int64(3)}

	want := desired(t, func(obj map[string]any) {
		containerOf(obj)["image"] = "app:v2"
		mustSet(obj, []any{"template/finalizer"}, "metadata", "finalizers")
		mustSet(obj, "1", "metadata", "resourceVersion")
		obj["status"] = map[string]any{"replicas": int64(99)}
	})
	merged, changed, err := merge.Update(live, want)
	if err != nil || !changed {
		t.Fatalf("changed %v, err %v", changed, err)
	}
	for _, field := range []string{"resourceVersion", "uid", "generation", "finalizers", "ownerReferences", "creationTimestamp", "managedFields"} {
		if diff := cmp.Diff(at(live.Object, "metadata", field), at(merged.Object, "metadata", field)); diff != "" {
			t.Errorf("metadata.%s (-live +merged):\n%s", field, diff)
		}
	}
	if got := at(merged.Object, "status", "replicas"); got != int64(3) {
		t.Errorf("status is %v, want that of the member", got)
	}
	// The result may be modified without harm to caches.
	inputs := []*unstructured.Unstructured{live.DeepCopy(), want.DeepCopy()}
	spoil(merged.Object)
	if !sameJSON(t, inputs[0], live) || !sameJSON(t, inputs[1], want) {
		t.Error("the result shares memory with its inputs")
	}
}

// spoil empties everything an object is made of.
func spoil(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, child := range v {
			spoil(child)
		}
		clear(v)
	case []any:
		for _, child := range v {
			spoil(child)
		}
		clear(v)
	}
}

// Objects written by Karmada carry its field managers and its lists of managed keys.
func TestTakingOverFromKarmada(t *testing.T) {
	karmadas := func() *unstructured.Unstructured {
		return edited(t, web, func(obj map[string]any) {
			mustSet(obj, "app,tier", "metadata", "annotations", "resourcetemplate.karmada.io/managed-labels")
			mustSet(obj, "note,resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels",
				"metadata", "annotations", "resourcetemplate.karmada.io/managed-annotations")
		})
	}
	changed := desired(t, func(obj map[string]any) {
		unstructured.RemoveNestedField(obj, "metadata", "labels", "tier")
		unstructured.RemoveNestedField(obj, "metadata", "annotations", "note")
		unstructured.RemoveNestedField(obj, "spec", "minReadySeconds")
	})
	for name, tt := range map[string]struct {
		manager  string
		strip    bool
		minReady any
	}{
		"by its field manager":  {"karmada-controller-manager", false, nil},
		"by its agent":          {"karmada-agent", false, nil},
		"by its lists alone":    {"karmada-controller-manager", true, int64(5)},
		"by an unknown manager": {"something", false, int64(5)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newDeploymentMember()
			m.write(t, tt.manager, karmadas())
			m.edit(t, "member", func(obj map[string]any) { mustSet(obj, "m", "metadata", "labels", "member") })
			live := m.live()
			if tt.strip {
				live.SetManagedFields(nil)
			}
			merged, _, err := merge.Update(live, changed)
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{"app": "web", "tier": "", "member": "m"} {
				if got := merged.GetLabels()[key]; got != want {
					t.Errorf("label %s is %q, want %q", key, got, want)
				}
			}
			if _, ok := merged.GetAnnotations()["note"]; ok {
				t.Error("the annotation that the template lost is still there")
			}
			if got := at(merged.Object, "spec", "minReadySeconds"); got != tt.minReady {
				t.Errorf("minReadySeconds is %v, want %v", got, tt.minReady)
			}
		})
	}
}

// Adopting an object of somebody else must not leave it with two fields of which only one is allowed.
func TestAlternativesOfOthersGiveWay(t *testing.T) {
	m := newDeploymentMember()
	m.write(t, "somebody", edited(t, web, func(obj map[string]any) {
		containerOf(obj)["livenessProbe"] = map[string]any{"httpGet": map[string]any{"port": int64(80)}, "periodSeconds": int64(3)}
		containerOf(obj)["env"] = []any{map[string]any{"name": "A", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "x"}}}}
	}))
	if !m.update(t, desired(t, func(obj map[string]any) {
		mustSet(obj, "Recreate", "spec", "strategy", "type")
		containerOf(obj)["livenessProbe"] = map[string]any{"exec": map[string]any{"command": []any{"true"}}}
		podOf(obj)["volumes"] = []any{map[string]any{"name": "data", "configMap": map[string]any{"name": "cm"}}}
	})) {
		t.Fatal("did not write")
	}
	live := m.live().Object
	for _, path := range [][]any{
		{"spec", "strategy", "rollingUpdate"}, pod("containers", "app", "livenessProbe", "httpGet"),
		pod("volumes", "data", "emptyDir"), pod("containers", "app", "env", "A", "valueFrom"),
	} {
		if got := at(live, path...); got != nil {
			t.Errorf("%v is still %v", path, got)
		}
	}
	if got := at(live, pod("containers", "app", "livenessProbe", "periodSeconds")...); got != int64(3) {
		t.Errorf("periodSeconds is %v, want the one set before", got)
	}
}

func TestOtherObjectsAreRefused(t *testing.T) {
	live := object(t, web)
	for name, change := range map[string]func(*unstructured.Unstructured){
		"name":      func(obj *unstructured.Unstructured) { obj.SetName("x") },
		"namespace": func(obj *unstructured.Unstructured) { obj.SetNamespace("x") },
		"version":   func(obj *unstructured.Unstructured) { obj.SetAPIVersion("apps/v2") },
		"kind":      func(obj *unstructured.Unstructured) { obj.SetKind("X") },
	} {
		t.Run(name, func(t *testing.T) {
			other := object(t, web)
			change(other)
			if _, _, err := merge.Update(live, other); err == nil {
				t.Error("merged one object into another")
			}
		})
	}
}

// Members are not trusted: whatever their objects look like, merging ends without a panic.
func TestMalformedLiveObjects(t *testing.T) {
	for i, spoil := range []func(obj map[string]any){
		func(obj map[string]any) { obj["spec"] = "text" },
		func(obj map[string]any) { obj["spec"] = nil },
		func(obj map[string]any) { mustSet(obj, "text", "metadata", "labels") },
		func(obj map[string]any) { mustSet(obj, "text", "metadata", "managedFields") },
		func(obj map[string]any) {
			mustSet(obj, []any{"text", map[string]any{"manager": "cellplane", "apiVersion": "apps/v1", "fieldsV1": map[string]any{"f:spec": "text"}}}, "metadata", "managedFields")
		},
		func(obj map[string]any) {
			mustSet(obj, []any{map[string]any{"manager": "cellplane", "apiVersion": "apps/v1", "fieldsV1": map[string]any{
				"f:spec": map[string]any{"f:template": map[string]any{"f:spec": map[string]any{"f:containers": map[string]any{"k:{": map[string]any{}, "k:5": map[string]any{}, "v:{}": map[string]any{}, "f:x": map[string]any{}}}}},
			}}}, "metadata", "managedFields")
		},
		func(obj map[string]any) { mustSet(podOf(obj), []any{"text", nil, map[string]any{}}, "containers") },
		func(obj map[string]any) { mustSet(containerOf(obj), map[string]any{"limits": []any{}}, "resources") },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			live := object(t, web)
			spoil(live.Object)
			manifest := desired(t, unchanged)
			merged, changed, err := merge.Update(live, manifest)
			if err != nil || !changed {
				t.Fatalf("changed %v, err %v", changed, err)
			}
			if got, want := at(merged.Object, pod("containers", "app", "image")...), "app:v1"; got != want {
				t.Errorf("image is %v, want %v", got, want)
			}
		})
	}
}
