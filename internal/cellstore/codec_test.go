package cellstore_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
)

// drawObject draws an object of a built-in or a custom kind.
func drawObject(t *rapid.T) runtime.Object {
	object := metav1.ObjectMeta{
		Namespace:         rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "namespace"),
		Name:              rapid.StringMatching(`[a-z]{1,8}(-[a-z]{1,8})?`).Draw(t, "name"),
		UID:               types.UID(rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "uid")),
		Generation:        rapid.Int64Range(0, 1000).Draw(t, "generation"),
		CreationTimestamp: metav1.Unix(rapid.Int64Range(1, 1<<31).Draw(t, "created"), 0),
		Labels:            drawMap(t, "labels"),
		Annotations:       drawMap(t, "annotations"),
		Finalizers:        rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,8}/x`), 0, 2).Draw(t, "finalizers"),
	}
	if rapid.Bool().Draw(t, "deleting") {
		at := metav1.Unix(rapid.Int64Range(1, 1<<31).Draw(t, "deleted"), 0)
		object.DeletionTimestamp = &at
	}
	if rapid.Bool().Draw(t, "managed") {
		object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{}}}}`)}}
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return &appsv1.Deployment{ObjectMeta: object, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: drawMap(t, "pod labels")}}}}
	case 1:
		return &corev1.ConfigMap{ObjectMeta: object, Data: drawMap(t, "data")}
	default:
		data, err := json.Marshal(map[string]any{
			"apiVersion": "example.io/v1", "kind": "Widget", "metadata": object,
			"Metadata": map[string]any{"name": "not-this", "labels": drawMap(t, "other labels")},
			"spec":     map[string]any{"metadata": map[string]any{"labels": drawMap(t, "inner labels")}, "text": rapid.String().Draw(t, "text")},
		})
		if err != nil {
			t.Fatal(err)
		}
		custom := &unstructured.Unstructured{}
		if err := custom.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		return custom
	}
}

func drawMap(t *rapid.T, label string) map[string]string {
	key := rapid.OneOf(rapid.StringMatching(`[a-z]{1,4}`), rapid.Just(names.RebalanceStatusLabel), rapid.Just("cellplane.io/s"), rapid.Just(`odd "key"\`))
	m := rapid.MapOfN(key, rapid.String(), 0, 4).Draw(t, label)
	if len(m) == 0 {
		return nil
	}
	return m
}

// store encodes an object as an API server stores it.
func store(t interface{ Fatal(...any) }, object runtime.Object) []byte {
	var out bytes.Buffer
	if custom, ok := object.(*unstructured.Unstructured); ok {
		if err := unstructured.UnstructuredJSONScheme.Encode(custom, &out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	kinds, _, err := clientgoscheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	if err := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestMarkIsWhatAnAPIServerStores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := drawObject(t)
		value := store(t, object)
		mark := cellstore.Mark{
			Labels:      rapid.SampledFrom([]map[string]string{nil, {names.RebalanceStatusLabel: "migrating"}, {names.RebalanceStatusLabel: ""}}).Draw(t, "label"),
			Annotations: rapid.SampledFrom([]map[string]string{nil, {"cellplane.io/moved-from": "a/1", "cellplane.io/copied-at": ""}, {"a": "x", "zz": "y"}}).Draw(t, "annotation"),
		}
		marked, err := cellstore.WithMark(value, mark)
		if err != nil {
			t.Fatal(err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetLabels(apply(accessor.GetLabels(), mark.Labels))
		accessor.SetAnnotations(apply(accessor.GetAnnotations(), mark.Annotations))
		if want := store(t, object); !bytes.Equal(marked, want) {
			t.Fatalf("got  %q\nwant %q", marked, want)
		}
	})
}

func apply(m, changes map[string]string) map[string]string {
	result := maps.Clone(m)
	if result == nil {
		result = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(result, key)
		} else {
			result[key] = value
		}
	}
	if len(result) == 0 {
		return nil
	}
	return result
}

func TestMarkAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := drawObject(t)
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetLabels(apply(accessor.GetLabels(), map[string]string{names.RebalanceStatusLabel: ""}))
		value := store(t, object)
		marked, err := cellstore.WithMark(value, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: "migrating"}})
		if err != nil {
			t.Fatal(err)
		}
		back, err := cellstore.WithMark(marked, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: ""}})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, value) || bytes.Equal(marked, value) {
			t.Fatalf("%q became %q and then %q", value, marked, back)
		}
	})
}

func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := drawObject(t)
		parsed, err := cellstore.Parse(store(t, object))
		if err != nil {
			t.Fatal(err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Name != accessor.GetName() || parsed.Namespace != accessor.GetNamespace() || parsed.UID != string(accessor.GetUID()) ||
			parsed.GroupVersionKind != object.GetObjectKind().GroupVersionKind() || parsed.Deleting != (accessor.GetDeletionTimestamp() != nil) ||
			!maps.Equal(parsed.Labels, accessor.GetLabels()) || !maps.Equal(parsed.Annotations, accessor.GetAnnotations()) {
			t.Fatalf("got %+v of %+v", parsed, object)
		}
	})
}

func TestClassify(t *testing.T) {
	for _, test := range []struct {
		name, value string
		want        cellstore.Class
		slotOf      string
	}{
		{"template", `{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"namespace":"shop","name":"web"}}`, cellstore.Template, "web"},
		{"template that pretends to be a copy", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"web","annotations":{"cellplane.io/copied-from-hub":"1"}}}`, cellstore.Template, "web"},
		{"binding", `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"namespace":"shop","name":"web-deployment"},"spec":{"resource":{"kind":"Deployment","name":"web"}}}`, cellstore.Binding, "web"},
		{"binding of a kind with a dash", `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"namespace":"shop","name":"web-a-b"},"spec":{"resource":{"kind":"A-B","name":"web"}}}`, cellstore.Binding, "web"},
		{"binding whose template has another name", `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"namespace":"shop","name":"web-deployment"},"spec":{"resource":{"kind":"Deployment","name":"other"}}}`, cellstore.Binding, "web"},
		{"binding of nothing", `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"namespace":"shop","name":"web"}}`, cellstore.Binding, "web"},
		{"work without a slot", `{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"namespace":"karmada-es-m","name":"web"}}`, cellstore.Local, ""},
		{"policy", `{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{"namespace":"shop","name":"web"}}`, cellstore.Local, ""},
		{"event", `{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"shop","name":"web"}}`, cellstore.Local, ""},
		{"cluster-scoped", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, cellstore.Local, ""},
		{"secret of a member", `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"karmada-cluster","name":"m"}}`, cellstore.Local, ""},
		{"quota", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"namespace":"shop","name":"q"}}`, cellstore.Local, ""},
		{"an API server's service", `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":"kubernetes"}}`, cellstore.Local, ""},
		{"a service called alike", `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"shop","name":"kubernetes"}}`, cellstore.Template, "kubernetes"},
		{"an API server's lease", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-system","name":"apiserver-x","labels":{"apiserver.kubernetes.io/identity":"kube-apiserver"}}}`, cellstore.Local, ""},
		{"a user's lease", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"shop","name":"leader"}}`, cellstore.Template, "leader"},
		{"an API server's map", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"kube-system","name":"extension-apiserver-authentication"}}`, cellstore.Local, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			object, err := cellstore.Parse([]byte(test.value))
			if err != nil {
				t.Fatal(err)
			}
			class, slot := cellstore.Classify(object)
			if class != test.want || (test.slotOf != "" && slot != slotOf("shop", test.slotOf)) {
				t.Errorf("got class %v, slot %v", class, slot)
			}
		})
	}
	work, err := cellstore.Parse([]byte(`{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"namespace":"karmada-es-m","name":"web","labels":{"cellplane.io/slot":"77"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if class, slot := cellstore.Classify(work); class != cellstore.Work || slot != 77 {
		t.Errorf("a work has class %v, slot %v", class, slot)
	}
}

// FuzzMark checks that hostile values yield errors, and accepted ones keep their identity.
func FuzzMark(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"X","metadata":{"name":"a","labels":{"x":"\u0041"}}}`))
	f.Add(store(f, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}}}))
	f.Add([]byte("k8s\x00\n\x00"))
	f.Add([]byte("k8s:enc:aescbc:v1:key1:"))
	f.Fuzz(func(t *testing.T, value []byte) {
		before, err := cellstore.Parse(value)
		if err != nil {
			return
		}
		marked, err := cellstore.WithMark(value, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: "migrated"}})
		if err != nil {
			return
		}
		after, err := cellstore.Parse(marked)
		if err != nil {
			t.Fatalf("%q cannot be read any more: %v", marked, err)
		}
		if after.Name != before.Name || after.Namespace != before.Namespace || after.GroupVersionKind != before.GroupVersionKind || after.Labels[names.RebalanceStatusLabel] != "migrated" {
			t.Fatalf("%+v became %+v", before, after)
		}
	})
}

func TestUnreadable(t *testing.T) {
	for _, value := range []string{"", "k8s:enc:aescbc:v1:key1:abc", "k8s\x00\xff", `{"metadata":`, `{}`, "\xa1cbor"} {
		if object, err := cellstore.Parse([]byte(value)); err == nil {
			t.Errorf("%q was read as %v", value, object)
		}
	}
}
