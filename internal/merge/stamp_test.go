package merge_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/merge"
)

const stampable = `
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, namespace: shop, labels: {app: web}, annotations: {note: hello}}
data: {k: v}
`

func TestStamp(t *testing.T) {
	manifest := object(t, stampable)
	before := manifest.DeepCopy()
	stamped := merge.Stamp(manifest, merge.Marks{
		WorkNamespace: "karmada-es-m1", WorkName: "cm-abc", WorkID: "work-id",
		BindingNamespace: "shop", BindingName: "cm-configmap", BindingID: "binding-id",
		TemplateUID: "uid", TemplateGeneration: 7, Cell: "a",
	})
	wantLabels := map[string]string{
		"app": "web", "karmada.io/managed": "true", "cellplane.io/cell": "a",
		"work.karmada.io/permanent-id": "work-id", "resourcebinding.karmada.io/permanent-id": "binding-id",
	}
	if diff := cmp.Diff(wantLabels, stamped.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantAnnotations := map[string]string{
		"note": "hello", "work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "cm-abc",
		"resourcebinding.karmada.io/namespace": "shop", "resourcebinding.karmada.io/name": "cm-configmap",
		"resourcetemplate.karmada.io/uid": "uid", "resourcetemplate.karmada.io/generation": "7",
		"work.karmada.io/conflict-resolution":        "abort",
		"resourcetemplate.karmada.io/managed-labels": "app,cellplane.io/cell,karmada.io/managed,resourcebinding.karmada.io/permanent-id,work.karmada.io/permanent-id",
		"resourcetemplate.karmada.io/managed-annotations": "cellplane.io/fingerprint,note,resourcebinding.karmada.io/name,resourcebinding.karmada.io/namespace,resourcetemplate.karmada.io/generation," +
			"resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels,resourcetemplate.karmada.io/uid," +
			"work.karmada.io/conflict-resolution,work.karmada.io/name,work.karmada.io/namespace",
		"cellplane.io/fingerprint": merge.Fingerprint(stamped),
	}
	if diff := cmp.Diff(wantAnnotations, stamped.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, manifest.Object); diff != "" {
		t.Errorf("the manifest changed (-before +after):\n%s", diff)
	}
	if again := merge.Stamp(stamped, merge.Marks{}); merge.Fingerprint(again) != merge.Fingerprint(stamped) {
		t.Error("stamping a stamped manifest changes its fingerprint")
	}
}

func TestStampOfClusterScopedObjects(t *testing.T) {
	stamped := merge.Stamp(object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"),
		merge.Marks{BindingName: "shop-namespace", BindingID: "id"})
	if got := stamped.GetAnnotations()["clusterresourcebinding.karmada.io/name"]; got != "shop-namespace" {
		t.Errorf("binding name is %q", got)
	}
	if got := stamped.GetLabels()["clusterresourcebinding.karmada.io/permanent-id"]; got != "id" {
		t.Errorf("binding ID is %q", got)
	}
	if _, ok := stamped.GetLabels()["resourcebinding.karmada.io/permanent-id"]; ok {
		t.Error("marked with a namespaced binding")
	}
}

func TestConflictResolution(t *testing.T) {
	for name, tt := range map[string]struct {
		own    string
		policy policyv1alpha1.ConflictResolution
		want   string
	}{
		"default":             {"", "", "abort"},
		"policy":              {"", policyv1alpha1.ConflictOverwrite, "overwrite"},
		"template wins":       {"abort", policyv1alpha1.ConflictOverwrite, "abort"},
		"template overwrites": {"overwrite", policyv1alpha1.ConflictAbort, "overwrite"},
		"nonsense is ignored": {"sometimes", policyv1alpha1.ConflictOverwrite, "overwrite"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := object(t, stampable)
			if tt.own != "" {
				mustSet(manifest.Object, tt.own, "metadata", "annotations", "work.karmada.io/conflict-resolution")
			}
			stamped := merge.Stamp(manifest, merge.Marks{ConflictResolution: tt.policy})
			if got := stamped.GetAnnotations()["work.karmada.io/conflict-resolution"]; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A fingerprint that differs between versions of this program would rewrite every object in every member on upgrade.
func TestFingerprintIsStable(t *testing.T) {
	manifest := object(t, web)
	if got, want := merge.Fingerprint(manifest), "1lmtfbnwheud3"; got != want {
		t.Errorf("Fingerprint() = %s, want %s", got, want)
	}
	for name, tt := range map[string]struct {
		change func(obj map[string]any)
		same   bool
	}{
		"status":       {func(obj map[string]any) { obj["status"] = map[string]any{"x": int64(1)} }, true},
		"version":      {func(obj map[string]any) { mustSet(obj, "5", "metadata", "resourceVersion") }, true},
		"itself":       {func(obj map[string]any) { mustSet(obj, "x", "metadata", "annotations", "cellplane.io/fingerprint") }, true},
		"real number":  {func(obj map[string]any) { mustSet(obj, 3.0, "spec", "replicas") }, true},
		"value":        {func(obj map[string]any) { mustSet(obj, int64(4), "spec", "replicas") }, false},
		"type":         {func(obj map[string]any) { mustSet(obj, "3", "spec", "replicas") }, false},
		"fraction":     {func(obj map[string]any) { mustSet(obj, 3.5, "spec", "replicas") }, false},
		"null":         {func(obj map[string]any) { mustSet(obj, nil, "spec", "replicas") }, false},
		"true":         {func(obj map[string]any) { mustSet(obj, true, "spec", "paused") }, false},
		"label":        {func(obj map[string]any) { mustSet(obj, "x", "metadata", "labels", "app") }, false},
		"annotation":   {func(obj map[string]any) { mustSet(obj, "x", "metadata", "annotations", "x") }, false},
		"order":        {func(obj map[string]any) { containerOf(obj)["args"] = []any{"-b", "-a"} }, false},
		"nested lists": {func(obj map[string]any) { containerOf(obj)["args"] = []any{[]any{"-a"}, "-b"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := edited(t, web, tt.change)
			if same := merge.Fingerprint(other) == merge.Fingerprint(manifest); same != tt.same {
				t.Errorf("same fingerprint: %v, want %v", same, tt.same)
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	manifest := merge.Stamp(object(b, web), merge.Marks{WorkName: "w", WorkNamespace: "ns"})
	m := newDeploymentMember()
	m.write(b, merge.FieldManager, manifest)
	m.edit(b, "member", func(obj map[string]any) {
		p := podOf(obj)
		p["containers"] = append(p["containers"].([]any), map[string]any{"name": "istio", "image": "istio"})
	})
	live := m.live()
	changed := merge.Stamp(edited(b, web, func(obj map[string]any) { containerOf(obj)["image"] = "app:v2" }), merge.Marks{WorkName: "w", WorkNamespace: "ns"})
	drifted := live.DeepCopy()
	mustSet(drifted.Object, int64(9), "spec", "replicas")

	for name, run := range map[string]func() (bool, error){
		"unchanged": func() (bool, error) { _, changed, err := merge.Update(live, manifest); return !changed, err },
		"changed":   func() (bool, error) { _, changed, err := merge.Update(live, changed); return changed, err },
		"drifted":   func() (bool, error) { _, changed, err := merge.Update(drifted, manifest); return changed, err },
		"stamp":     func() (bool, error) { return merge.Stamp(manifest, merge.Marks{WorkName: "w"}) != nil, nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := run(); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
