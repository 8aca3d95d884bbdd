package rollout

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
)

// What a command has replaced brings the spec back, also after further commands to a copy that keeps its pod template.
func TestReplaced(t *testing.T) {
	for name, spec := range map[string]string{
		"Deployment with percentages":   `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},"template":{}}}`,
		"Deployment without a strategy": `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3,"template":{}}}`,
		"paused Deployment":             `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":3,"paused":true,"strategy":{"rollingUpdate":{"maxSurge":5}},"template":{}}}`,
		"StatefulSet":                   `{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{"replicas":3,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"50%"}},"template":{}}}`,
		"CloneSet":                      `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","spec":{"replicas":3,"updateStrategy":{"type":"InPlaceIfPossible","paused":true,"partition":"20%"},"template":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			manifest := object(t, spec)
			first := Entry{Seq: 2, Command: Command{Replicas: 3, Surge: 1, Revision: "a"}}
			second := Entry{Seq: 3, Command: Command{Replicas: 3, Unavailable: 2, Partition: 1, Paused: true, Revision: "a"}}
			told := object(t, string(mustJSON(t, second.Apply(first.Apply(manifest)))))

			has := mustJSON(t, &unstructured.Unstructured{Object: told.Object["spec"].(map[string]any)})
			own, err := Restoring(told, Replaced(told))
			if err != nil {
				t.Fatal(err)
			}
			patch, err := json.Marshal(own)
			if err != nil {
				t.Fatal(err)
			}
			back, err := jsonpatch.MergePatch(has, patch)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(back, &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{}
			if err := json.Unmarshal(mustJSON(t, &unstructured.Unstructured{Object: manifest.Object["spec"].(map[string]any)}), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("got another spec back (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing but what commands set is taken from the annotation: members may have changed it.
func TestReplacedInMembers(t *testing.T) {
	for text, want := range map[string]string{
		"": "null", "x": "null", `["a"]`: "null", `{"template":{"spec":{"hostPID":true}}}`: "{}", `{"replicas":0}`: "{}",
		`{"paused":null,"template":{"spec":{}},"strategy":{"type":"RollingUpdate"}}`: `{"paused":null,"strategy":{"type":"RollingUpdate"}}`,
	} {
		manifest := object(t, web)
		manifest.SetAnnotations(map[string]string{names.RolloutReplacedAnnotation: text})
		got, err := json.Marshal(Replaced(manifest))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("Replaced(%q) = %q, want %q", text, got, want)
		}
	}
}

// What a command decides about depends on the kind, and only objects that carry a command have any of it.
func TestGrants(t *testing.T) {
	for _, test := range []struct {
		apiVersion, kind, field string
		want                    bool
	}{
		{"apps/v1", "Deployment", "spec.strategy.rollingUpdate.maxSurge", true},
		{"apps/v1", "Deployment", "spec.strategy", true},
		{"apps/v1", "Deployment", "spec.strategyOfMine", false},
		{"apps/v1", "Deployment", "spec.paused", false}, // people pause, too
		{"apps/v1", "Deployment", "spec.replicas", false},
		{"apps/v1", "StatefulSet", "spec.updateStrategy.rollingUpdate.partition", true},
		{"apps.kruise.io/v1alpha1", "CloneSet", "spec.updateStrategy.partition", true},
		{"apps.kruise.io/v1alpha1", "CloneSet", "spec.updateStrategy.type", false},
		{"apps/v1", "DaemonSet", "spec.updateStrategy", false},
	} {
		manifest := &unstructured.Unstructured{Object: map[string]any{"apiVersion": test.apiVersion, "kind": test.kind}}
		if Grants(manifest, test.field) {
			t.Errorf("%s without a command decides about %s", test.kind, test.field)
		}
		manifest.SetAnnotations(map[string]string{names.RolloutCommandAnnotation: "2/a"})
		if got := Grants(manifest, test.field); got != test.want {
			t.Errorf("%s decides about %s: %t", test.kind, test.field, got)
		}
	}
}
