package entry_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/entry"
)

// TestWritten tells writes of people from those of controllers, and new ones from old ones.
func TestWritten(t *testing.T) {
	const (
		image    = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{"f:image":{}}}}}}}`
		replicas = `{"f:spec":{"f:replicas":{}}}`
		labels   = `{"f:metadata":{"f:labels":{"f:karmada.io/managed":{},"f:team":{}}}}`
		set      = `{"f:metadata":{"f:finalizers":{"v:\"example.com/x\"":{}}}}`
	)
	at := func(second int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 3, 4, 5, 6, second, 0, time.UTC)}
	}
	by := func(manager string, second int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: at(second), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	ours := by("cellplane", 10, `{"f:metadata":{"f:annotations":{"f:cellplane.io/fingerprint":{}}}}`)
	for name, tt := range map[string]struct {
		managed   []metav1.ManagedFieldsEntry
		changed   bool   // the federation wants something else than before
		seen      string // annotation
		finalizer bool   // the live object has one that the merge removes
		want      string // the field; empty for none
	}{
		"a person":                        {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, image)}, want: `spec.template.spec.containers[name="app"].image`},
		"plain kubectl, by scale":         {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl", 11, replicas)}, want: "spec.replicas"},
		"a browser":                       {managed: []metav1.ManagedFieldsEntry{ours, by("Mozilla", 11, replicas)}, want: "spec.replicas"},
		"a label":                         {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-label", 11, labels)}, want: "metadata.labels.team"},
		"an item of a set":                {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-patch", 11, set)}, finalizer: true, want: `metadata.finalizers[="example.com/x"]`},
		"the autoscaler":                  {managed: []metav1.ManagedFieldsEntry{ours, by("kube-controller-manager", 11, replicas)}},
		"an unknown program":              {managed: []metav1.ManagedFieldsEntry{ours, by("kubectlish", 11, replicas)}},
		"the federation itself":           {managed: []metav1.ManagedFieldsEntry{by("cellplane", 11, replicas)}},
		"the one who opens entries":       {managed: []metav1.ManagedFieldsEntry{ours, by("cellplane-entry", 11, replicas)}},
		"a field that stays":              {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, `{"f:spec":{"f:paused":{}}}`)}},
		"nothing says when":               {managed: []metav1.ManagedFieldsEntry{ours, {Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(replicas)}}},
		"broken fields":                   {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl", 11, `{"x":`)}},
		"the federation never wrote":      {managed: []metav1.ManagedFieldsEntry{by("kubectl-edit", 11, image)}},
		"no managed fields":               {},
		"it was decided about":            {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, image)}, seen: "2026-03-04T05:06:11Z"},
		"a newer one":                     {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 12, replicas)}, seen: "2026-03-04T05:06:11Z", want: "spec.replicas"},
		"a time that is none":             {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, replicas)}, seen: "yesterday", want: "spec.replicas"},
		"another zone":                    {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, image)}, seen: "2026-03-04T06:06:11+01:00"},
		"before adoption":                 {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-create", 9, image)}, changed: true},
		"after our write, template newer": {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 11, replicas)}, changed: true, want: "spec.replicas"},
		"in the second of our write":      {managed: []metav1.ManagedFieldsEntry{ours, by("kubectl-edit", 10, replicas)}, changed: true, want: "spec.replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			object := func(replicas int64, image, team string) *unstructured.Unstructured {
				return &unstructured.Unstructured{Object: map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"karmada.io/managed": image, "team": team}},
					"spec": map[string]any{"replicas": replicas, "template": map[string]any{"spec": map[string]any{"containers": []any{
						map[string]any{"name": "other", "image": "same"}, map[string]any{"name": "app", "image": image},
					}}}},
				}}
			}
			live, merged := object(5, "repaired", "theirs"), object(2, "ours", "ours")
			if tt.finalizer {
				live.SetFinalizers([]string{"example.com/x"})
			}
			live.SetManagedFields(tt.managed)
			if tt.seen != "" {
				live.SetAnnotations(map[string]string{names.EntrySeenAnnotation: tt.seen})
			}
			write, is := entry.Written(live, merged, entry.Federation{Manager: "cellplane", Unchanged: !tt.changed})
			if is != (tt.want != "") || is && (len(write.Fields) != 1 || write.Fields[0] != tt.want) {
				t.Errorf("Written() = %+v, %t, want %q", write, is, tt.want)
			}
			if !is {
				return
			}
			// What was seen does not count again.
			live.SetAnnotations(map[string]string{names.EntrySeenAnnotation: entry.Seen(live)[names.EntrySeenAnnotation].(string)})
			if write, is := entry.Written(live, merged, entry.Federation{Manager: "cellplane", Unchanged: !tt.changed}); is {
				t.Errorf("it is written again: %+v", write)
			}
		})
	}
}

func TestRulesOf(t *testing.T) {
	for name, tt := range map[string]struct {
		auto, expiry string
		want         *entry.Rules
		fails        bool
	}{
		"none":             {},
		"for a time":       {auto: "2h", want: &entry.Rules{Auto: true, For: 2 * time.Hour}},
		"without end":      {auto: "0", want: &entry.Rules{Auto: true}},
		"discard":          {expiry: "Discard", want: &entry.Rules{Discard: true}},
		"stay":             {auto: "1m", expiry: "Stay", want: &entry.Rules{Auto: true, For: time.Minute}},
		"no duration":      {auto: "true", fails: true},
		"negative":         {auto: "-1h", fails: true},
		"an unknown word":  {expiry: "Keep", fails: true},
		"one of them only": {auto: "1h", expiry: "discard", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := entry.RulesOf(map[string]string{names.AutoEntryAnnotation: tt.auto, names.EntryExpiryAnnotation: tt.expiry})
			if (err != nil) != tt.fails || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
				t.Errorf("RulesOf() = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

// Only a policy that says so ends an entry.
func TestEnds(t *testing.T) {
	now := time.Now()
	past, future := &entry.Entry{Until: now.Add(-time.Second)}, &entry.Entry{Until: now.Add(time.Second)}
	for name, tt := range map[string]struct {
		rules *entry.Rules
		entry *entry.Entry
		want  bool
	}{
		"over":           {&entry.Rules{Discard: true}, past, true},
		"not over":       {&entry.Rules{Discard: true}, future, false},
		"without a time": {&entry.Rules{Discard: true}, &entry.Entry{}, false},
		"stays":          {&entry.Rules{Auto: true}, past, false},
		"no rules":       {nil, past, false},
	} {
		if got := tt.rules.Ends(tt.entry, now); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
