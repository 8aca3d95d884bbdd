package adopt

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/rollout"
)

// Keep returns the overriders with which the federation wants what an object of a member is like now, and the fields
// they are about. Manifest is what the federation wants so far, and merged is that merged into the object: only what
// the federation would change back needs an override.
func Keep(interpreter Interpreter, manifest, merged, live *unstructured.Unstructured) (policyv1alpha1.Overriders, []string, error) {
	kept, fields, err := keptOf(interpreter, manifest, merged, live)
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	wanted, err := strip(interpreter, manifest)
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	has, err := strip(interpreter, live)
	if err != nil {
		return policyv1alpha1.Overriders{}, nil, err
	}
	overriders, err := compose(wanted.Object, has.Object, kept)
	return overriders, fields, err
}

// keptOf returns the differences between a manifest and an object that the federation would change back, and their fields. What a rolling update over several clusters
// grants to each of them is not among them: it changes all the time, and nobody can keep it.
func keptOf(interpreter Interpreter, manifest, merged, live *unstructured.Unstructured) (kept []difference.Difference, fields []string, err error) {
	wanted, err := strip(interpreter, manifest)
	if err != nil {
		return nil, nil, err
	}
	has, err := strip(interpreter, live)
	if err != nil {
		return nil, nil, err
	}
	for _, change := range difference.Between(merged, live) {
		if !rollout.Grants(manifest, change.Field) {
			fields = append(fields, change.Field)
		}
	}
	kept = slices.DeleteFunc(difference.Of(wanted.Object, has.Object), func(d difference.Difference) bool {
		return !slices.ContainsFunc(fields, func(field string) bool { return within(field, d.Field) || within(d.Field, field) })
	})
	return kept, fields, nil
}

// within reports whether a field is another one or below it.
func within(field, parent string) bool {
	rest, below := strings.CutPrefix(field, parent)
	return below && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
