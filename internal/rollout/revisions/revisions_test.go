package revisions

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/slots"
)

func workload(kind, name, image string, annotations map[string]string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-1"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{
				"metadata": map[string]any{"creationTimestamp": nil, "labels": map[string]any{"app": "web"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": image}}},
			},
		},
	}}
	obj.SetAnnotations(annotations)
	return obj
}

func first(obj *unstructured.Unstructured) string {
	for name := range Names(obj) {
		return name
	}
	return ""
}

// TestRoundTrip checks that a stored revision says what its workload said, and is in the same slot.
func TestRoundTrip(t *testing.T) {
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		for _, name := range []string{"web", strings.Repeat("long", 60)} {
			of := workload(kind, name, "web:1", map[string]string{
				"kubernetes.io/change-cause": "first", "kubectl.kubernetes.io/last-applied-configuration": "{}", names.MovedFromAnnotation: "cell-a/7", NumberAnnotation: "9",
				names.BreakGlassAnnotation: "a reason of that time", names.ReleaseAnnotation: "*", names.AutoscaledByAnnotation: "web",
			})
			revision, err := New(of, first(of), 4)
			if err != nil {
				t.Fatal(err)
			}
			want := Present(of)
			want.Number = 4
			if got := Read(revision); got != want {
				t.Errorf("%s: stored %+v, want %+v", kind, got, want)
			}
			class, slot := cellstore.Classify(&cellstore.Object{GroupVersionKind: revision.GroupVersionKind(), Namespace: revision.GetNamespace(), Name: revision.GetName()})
			if class != cellstore.Template || slot != slots.Of("shop", name) {
				t.Errorf("%s %s is in slot %d, want that of its workload, %d", revision.GetKind(), revision.GetName(), slot, slots.Of("shop", name))
			}
			annotations := map[string]string{"kubernetes.io/change-cause": "first"}
			if kind == "Deployment" {
				annotations[NumberAnnotation] = "4"
			}
			if diff := cmp.Diff(annotations, revision.GetAnnotations()); diff != "" {
				t.Errorf("%s: annotations (-want +got):\n%s", kind, diff)
			}
			if template, _, _ := unstructured.NestedMap(of.Object, "spec", "template", "metadata", "labels"); len(template) != 1 {
				t.Errorf("%s: the workload was changed: %v", kind, template)
			}
		}
	}
}

// TestRenewFollowsAnnotations checks that a revision loses the annotations that its workload has lost, and keeps its own.
func TestRenewFollowsAnnotations(t *testing.T) {
	of := workload("Deployment", "web", "web:1", map[string]string{"old": "x"})
	revision, err := New(of, first(of), 1)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{names.MovedFromAnnotation: "cell-a/7"}
	maps.Copy(own, revision.GetAnnotations())
	revision.SetAnnotations(own)
	Renew(revision, workload("Deployment", "web", "web:1", map[string]string{"new": "y"}), 3)
	if diff := cmp.Diff(map[string]string{"new": "y", NumberAnnotation: "3", names.MovedFromAnnotation: "cell-a/7"}, revision.GetAnnotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestNext(t *testing.T) {
	record := func(number int64, template string) Record {
		return Record{Number: number, Template: template, Annotations: "a"}
	}
	for _, test := range []struct {
		name   string
		stored []Record
		limit  int
		want   Plan
	}{
		{"the first", nil, 10, Plan{Number: 1, Create: true, Renew: -1}},
		{"a new one", []Record{record(1, "x"), record(4, "y")}, 10, Plan{Number: 5, Create: true, Renew: -1}},
		{"nothing new", []Record{record(1, "x"), record(2, "now")}, 10, Plan{Number: 2, Renew: -1}},
		{"an earlier one", []Record{record(1, "now"), record(2, "y")}, 10, Plan{Number: 3, Renew: 0}},
		{"other annotations", []Record{{Number: 1, Template: "now", Annotations: "b"}}, 10, Plan{Number: 1, Renew: 0}},
		{"two with one number", []Record{record(2, "x"), record(2, "now")}, 10, Plan{Number: 3, Renew: 1}},
		{"without a number", []Record{record(0, "now")}, 10, Plan{Number: 1, Renew: 0}},
		{"beyond the limit", []Record{record(3, "z"), record(1, "x"), record(2, "y"), record(4, "now")}, 1, Plan{Number: 4, Renew: -1, Remove: []int{1, 2}}},
		{"two of the present pod template", []Record{record(1, "x"), record(2, "now"), record(2, "now")}, 1, Plan{Number: 3, Renew: 1, Remove: []int{2}}},
		{"no history", []Record{record(1, "x")}, 0, Plan{Number: 2, Create: true, Renew: -1, Remove: []int{0}}},
	} {
		if diff := cmp.Diff(test.want, Next(Record{Template: "now", Annotations: "a"}, test.stored, test.limit)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestHistory changes the pod template at random, and carries plans out only in part. The newest revision is always the present one in the end, numbers and
// pod templates are distinct, and there are as many as the limit allows.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored []Record
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		used := map[int64]string{}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			present := Record{Template: fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "template")), Annotations: fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "annotations"))}
			crash := rapid.IntRange(0, 3).Draw(t, "crash")
			for crash >= 0 {
				p := Next(present, stored, limit)
				renewed := present
				if renewed.Number = p.Number; p.Create {
					stored = append(stored, renewed)
				} else if p.Renew >= 0 {
					stored[p.Renew] = renewed
				} else if len(p.Remove) == 0 {
					break
				}
				if was, known := used[p.Number]; known && was != present.Template {
					t.Fatalf("number %d was of %s, and is of %s", p.Number, was, present.Template)
				}
				used[p.Number] = present.Template
				if crash--; len(p.Remove) > 0 && crash%2 == 0 {
					stored = append(stored[:p.Remove[0]:p.Remove[0]], stored[p.Remove[0]+1:]...)
				}
			}
			for p := Next(present, stored, limit); ; p = Next(present, stored, limit) {
				renewed := present
				renewed.Number = p.Number
				switch {
				case p.Create:
					stored = append(stored, renewed)
					continue
				case p.Renew >= 0:
					stored[p.Renew] = renewed
					continue
				case len(p.Remove) > 0:
					stored = append(stored[:p.Remove[0]:p.Remove[0]], stored[p.Remove[0]+1:]...)
					continue
				}
				break
			}
			numbers, templates, newest := map[int64]bool{}, map[string]bool{}, Record{}
			for _, record := range stored {
				numbers[record.Number], templates[record.Template] = true, true
				if record.Number > newest.Number {
					newest = record
				}
			}
			if len(numbers) != len(stored) || len(templates) != len(stored) || len(stored) > limit+1 || newest.Template != present.Template || newest.Annotations != present.Annotations {
				t.Fatalf("%+v after %+v, limit %d", stored, present, limit)
			}
		}
	})
}
