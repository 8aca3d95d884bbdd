package detector

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/policies"
)

// TestActivated checks when a lazy policy takes effect on a template without a binding, in whichever order the two are
// seen.
func TestActivated(t *testing.T) {
	const noon = 1_800_000_000
	at := func(seconds int64) metav1.Time { return metav1.Unix(noon+seconds, 0) }
	copied := func(original, copy int64) metav1.ObjectMeta {
		return metav1.ObjectMeta{CreationTimestamp: at(copy), Generation: 1, Annotations: map[string]string{
			names.SourceCreatedAnnotation: at(original).UTC().Format(time.RFC3339), names.SourceGenerationAnnotation: "1",
		}}
	}
	edited := copied(0, 5)
	edited.Annotations[names.SourceGenerationAnnotation] = "2"
	made := func(seconds int64) metav1.ObjectMeta {
		return metav1.ObjectMeta{CreationTimestamp: at(seconds), Generation: 1}
	}
	for _, test := range []struct {
		name     string
		policy   metav1.ObjectMeta
		template int64
		how      action
		want     bool
	}{
		{"the template is older, seen when created", made(1), 0, createdByUser, false},
		{"the template is older, seen long ago", made(1), 0, nothing, false},
		{"the template is older and has changed", made(1), 0, changedByUser, true},
		{"created together, the policy seen first", made(0), 0, createdByUser, true},
		{"created together, the template seen first", made(0), 0, nothing, true},
		{"the policy is older", made(0), 1, nothing, true},
		{"the policy's copy is younger than the template", copied(0, 5), 1, nothing, true},
		{"the policy's original is younger than the template", copied(2, 5), 1, createdByUser, false},
		{"the policy was edited after the template was seen", edited, 1, nothing, false},
		{"the policy was edited before the template was created", edited, 1, createdByUser, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, err := cell.New(&rest.Config{Host: "https://nowhere.example"}, cell.Options{Name: "cell-a"})
			if err != nil {
				t.Fatal(err)
			}
			d := &Controller{cell: state, touched: newTouched()}
			template := &cell.Template{
				Kind:      &cell.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespaced: true},
				Namespace: "ns", Name: "web", Created: noon + test.template, Digest: 7,
			}
			d.touched.touch(template.Key(), touch{7, test.how})
			policy := policies.Compile(&policyv1alpha1.PropagationPolicy{ObjectMeta: test.policy})
			if got := d.activated(template, policy); got != test.want {
				t.Errorf("activated is %t", got)
			}
		})
	}
}
