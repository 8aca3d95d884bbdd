package skew

import (
	"context"
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/api/names"
)

// TestWatch looks at a control plane that other releases prepare, and that cannot be asked at times.
func TestWatch(t *testing.T) {
	definitions := apiextensionsv1.Resource("customresourcedefinitions")
	mine := map[string]string{names.LevelAnnotation: "1", names.ServesLevelAnnotation: "1"}
	later := map[string]string{names.LevelAnnotation: "3", names.ServesLevelAnnotation: "2"}
	const newer, absent = "the hub is of another release: its CustomResourceDefinitions are of level 3", "the hub does not have the API of Cellplane yet"
	var annotations map[string]string
	var failure error
	w := &Watch{plane: "the hub", changed: make(chan struct{}), read: func(context.Context) (map[string]string, error) { return annotations, failure }}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, step := range []struct {
		name        string
		annotations map[string]string
		err         error
		works       bool
		problem     string
	}{
		{"nothing is known", nil, errors.New("unreachable"), false, ""},
		{"it is being installed", nil, apierrors.NewNotFound(definitions, crds.Marker), false, absent},
		{"it is of this release", mine, nil, true, ""},
		{"it does not answer", nil, errors.New("unreachable"), true, ""},
		{"it is of a later release", later, nil, false, newer},
		{"it does not answer any more", nil, errors.New("unreachable"), false, newer},
		{"it may not be asked", nil, apierrors.NewForbidden(definitions, crds.Marker, nil), true, ""},
	} {
		annotations, failure = step.annotations, step.err
		w.look(t.Context())
		if err := w.Problem(); (err == nil) != (step.problem == "") || err != nil && !strings.HasPrefix(err.Error(), step.problem) {
			t.Errorf("%s: the problem is %v, want %q", step.name, err, step.problem)
		}
		if err := w.Await(ended); (err == nil) != step.works {
			t.Errorf("%s: waiting until the part may work ends with %v", step.name, err)
		}
		if err := w.Refused(ended); (err == nil) != (step.problem == "") {
			t.Errorf("%s: the part is refused with %v", step.name, err)
		}
	}
}
