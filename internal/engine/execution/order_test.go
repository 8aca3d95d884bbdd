package execution

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// An earlier command of a rollout does not replace a later one of the same template.
func TestCheckOrder(t *testing.T) {
	object := func(command, template string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		annotations := map[string]string{names.TemplateUIDAnnotation: template}
		if command != "" {
			annotations[names.RolloutCommandAnnotation] = command
		}
		obj.SetAnnotations(annotations)
		return obj
	}
	for _, test := range []struct {
		name          string
		live, desired *unstructured.Unstructured
		refused       bool
	}{
		{"neither has a number", object("", "1"), object("", "1"), false},
		{"the first number", object("", "1"), object("2/a", "1"), false},
		{"the next number", object("2/a", "1"), object("3/a", "1"), false},
		{"the same number", object("3/a", "1"), object("3/a", "1"), false},
		{"an earlier number", object("3/a", "1"), object("2/b", "1"), true},
		{"ten is more than nine", object("10/a", "1"), object("9/b", "1"), true},
		{"none any more", object("3/a", "1"), object("", "1"), true},
		{"of another template", object("3/a", "1"), object("", "2"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkOrder(&cell.Object{Key: cell.Key{Namespace: "shop", Name: "web"}}, test.live, test.desired)
			if outdated := (*outdatedError)(nil); errors.As(err, &outdated) != test.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
