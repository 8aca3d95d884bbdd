package rollout

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return obj
}

const web = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"a":"b"}},
	"spec":{"replicas":9,"minReadySeconds":3,"paused":true,"strategy":{"rollingUpdate":{"maxSurge":"50%","maxUnavailable":1}},
	"template":{"spec":{"containers":[{"name":"c","image":"app:1"}]}}}}`

func TestCopyOf(t *testing.T) {
	for _, test := range []struct {
		name, manifest string
		want           *Copy
	}{
		{"of a template", web, &Copy{Seq: 1, Command: Command{Replicas: 9, Surge: 5, Unavailable: 1, Paused: true}}},
		{"with defaults", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{}}`, &Copy{Seq: 1, Command: Command{Replicas: 1, Surge: 1}}},
		{"with a number", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"cellplane.io/rollout-command":"7/x"}},"spec":{"replicas":0}}`,
			&Copy{Seq: 7, Command: Command{}}},
		{"with something else for a number", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"cellplane.io/rollout-command":"seven"}},"spec":{"replicas":0}}`,
			&Copy{Seq: 1, Command: Command{}}},
		{"with bounds that no API server accepts", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"strategy":{"rollingUpdate":{"maxSurge":"many"}}}}`, nil},
		{"of a StatefulSet", `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"replicas":9,"updateStrategy":{"rollingUpdate":{"maxUnavailable":"25%","partition":3}}}}`,
			&Copy{Seq: 1, Command: Command{Replicas: 9, Unavailable: 2, Partition: 3}}},
		{"of a StatefulSet with defaults", `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{}}`, &Copy{Seq: 1, Command: Command{Replicas: 1, Unavailable: 1}}},
		{"of a CloneSet", `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","spec":{"replicas":9,"updateStrategy":{"paused":true,"maxSurge":"10%","maxUnavailable":"25%","partition":"95%"}}}`,
			&Copy{Seq: 1, Command: Command{Replicas: 9, Surge: 1, Unavailable: 2, Partition: 8, Paused: true}}},
		{"of a CloneSet with defaults", `{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","spec":{"replicas":9}}`, &Copy{Seq: 1, Command: Command{Replicas: 9, Unavailable: 2}}},
		{"of another kind", `{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{}}`, nil},
		{"of another group", `{"apiVersion":"example.io/v1","kind":"Deployment","spec":{}}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifest := object(t, test.manifest)
			got := CopyOf(manifest)
			if got != nil && test.want != nil {
				test.want.Command.Revision = RevisionOf(manifest)
			}
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestRolls(t *testing.T) {
	for manifest, want := range map[string]bool{
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{}}`:                                                                           true,
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"strategy":{"type":"Recreate"}}}`:                                             false,
		`{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1}}}}`: true,
		`{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"updateStrategy":{"type":"OnDelete"}}}`:                                      false,
		`{"apiVersion":"apps/v1","kind":"DaemonSet","spec":{"updateStrategy":{"type":"RollingUpdate"}}}`:                                   false,
	} {
		if got := Rolls(object(t, manifest)); got != want {
			t.Errorf("Rolls(%s) = %t", manifest, got)
		}
	}
}

// A StatefulSet is told only what its API knows.
func TestApplyToStatefulSet(t *testing.T) {
	manifest := object(t, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"replicas":9,"updateStrategy":{"rollingUpdate":{"maxUnavailable":"50%"}},"template":{}}}`)
	for unavailable, want := range map[int]string{
		1: `{"rollingUpdate":{"partition":0},"type":"RollingUpdate"}`,
		2: `{"rollingUpdate":{"maxUnavailable":2,"partition":0},"type":"RollingUpdate"}`,
	} {
		entry := Entry{Seq: 4, Command: Command{Replicas: 3, Unavailable: unavailable, Revision: RevisionOf(manifest)}}
		applied := object(t, string(mustJSON(t, entry.Apply(manifest))))
		spec := applied.Object["spec"].(map[string]any)
		if strategy, err := json.Marshal(spec["updateStrategy"]); err != nil || string(strategy) != want || len(spec) != 3 {
			t.Errorf("%d unavailable: got %s with %v, want %s", unavailable, strategy, spec, want)
		}
		if got := CopyOf(applied); *got != (Copy{Seq: 4, Command: entry.Command}) {
			t.Errorf("%+v became %+v", entry, *got)
		}
	}
}

// A CloneSet keeps how it updates pods, and is told whole numbers.
func TestApplyToCloneSet(t *testing.T) {
	manifest := object(t, `{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","metadata":{"name":"web"},
		"spec":{"replicas":9,"updateStrategy":{"type":"InPlaceIfPossible","partition":"40%","maxUnavailable":"50%","paused":true},"template":{}}}`)
	entry := Entry{Seq: 4, Command: Command{Replicas: 3, Surge: 1, Partition: 2, Revision: RevisionOf(manifest)}}
	applied := object(t, string(mustJSON(t, entry.Apply(manifest))))
	want := `{"maxSurge":1,"maxUnavailable":0,"partition":2,"type":"InPlaceIfPossible"}`
	if strategy, err := json.Marshal(applied.Object["spec"].(map[string]any)["updateStrategy"]); err != nil || string(strategy) != want {
		t.Errorf("got %s, want %s", strategy, want)
	}
	if got := CopyOf(applied); *got != (Copy{Seq: 4, Command: entry.Command}) {
		t.Errorf("%+v became %+v", entry, *got)
	}
	if !Paused(manifest) || Paused(applied) || !Rolls(manifest) {
		t.Error("it is paused by spec.updateStrategy.paused")
	}
}

// A manifest for a command says what the command says, is accepted by the API, and shares nothing that is changed with the manifest it was made from.
func TestApply(t *testing.T) {
	manifest := object(t, web)
	before, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	revision := RevisionOf(manifest)
	for _, entry := range []Entry{
		{Seq: 1, Command: Command{Replicas: 3, Surge: 1, Unavailable: 0, Revision: revision}},
		{Seq: 12, Command: Command{Replicas: 3, Surge: 0, Unavailable: 2, Revision: revision, Paused: true}},
		{Seq: 13, Command: Command{Replicas: 0, Unavailable: 0, Revision: revision}},
	} {
		applied := entry.Apply(manifest)
		stored := object(t, string(mustJSON(t, applied)))
		got := CopyOf(stored)
		want := Copy{Seq: entry.Seq, Command: entry.Command}
		if *got != want {
			t.Errorf("%+v became %+v", want, *got)
		}
		if rolling := Deployment.strategy(stored.Object["spec"].(map[string]any)); rolling["maxSurge"] == int64(0) && rolling["maxUnavailable"] == int64(0) {
			t.Errorf("%+v has neither surge nor unavailable; the API refuses it", entry)
		}
		if SeqOf(stored) != entry.Seq {
			t.Errorf("SeqOf() = %d, want %d", SeqOf(stored), entry.Seq)
		}
		if again := CopyOf((&Entry{Seq: 1, Command: entry.Command}).Apply(stored)); again.Seq != 1 {
			t.Errorf("the number %d stayed", again.Seq)
		}
	}
	if after := mustJSON(t, manifest); string(after) != string(before) {
		t.Errorf("the manifest became %s", after)
	}
	other := object(t, web)
	if err := unstructured.SetNestedField(other.Object, "5s", "spec", "template", "spec", "x"); err != nil {
		t.Fatal(err)
	}
	if RevisionOf(other) == revision {
		t.Error("another pod template has the same name")
	}
}

func mustJSON(t *testing.T, obj *unstructured.Unstructured) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
