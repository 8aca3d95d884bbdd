package adopt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/override"
)

// maxOverriders is how many overriders of a kind a rule may have.
const maxOverriders = 256

// overridersOf returns the overriders that turn a template into the object of a cluster.
func overridersOf(template, object *unstructured.Unstructured) (policyv1alpha1.Overriders, error) {
	overriders, err := compose(template.Object, object.Object, diff(template.Object, object.Object))
	if err != nil || len(overriders.Plaintext) <= maxOverriders && len(overriders.ImageOverrider) <= maxOverriders {
		return overriders, err
	}
	return compose(template.Object, object.Object, coarse(template.Object, object.Object))
}

// coarse returns the differing fields of the root, as a whole. Metadata is excepted: it holds the identity.
func coarse(from, to map[string]any) []difference {
	var found []difference
	for _, d := range diff(from, to) {
		path := d.path[:1]
		if d.path[0] == "metadata" {
			path = d.path[:min(2, len(d.path))]
		}
		known := func(seen difference) bool { return slices.Equal(seen.path, path) }
		if !slices.ContainsFunc(found, known) {
			found = append(found, difference{path: path, from: lookup(from, path), to: lookup(to, path)})
		}
	}
	return found
}

func lookup(value any, path []string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

func compose(from, to map[string]any, differences []difference) (policyv1alpha1.Overriders, error) {
	var result policyv1alpha1.Overriders
	labels, annotations := metadataChange{}, metadataChange{}
	for _, d := range differences {
		switch {
		case len(d.path) >= 2 && d.path[0] == "metadata" && d.path[1] == "labels":
			labels.record(from, to, "labels", d)
			continue
		case len(d.path) >= 2 && d.path[0] == "metadata" && d.path[1] == "annotations":
			annotations.record(from, to, "annotations", d)
			continue
		}
		if images, ok := imageOverriders(d); ok {
			result.ImageOverrider = append(result.ImageOverrider, images...)
			continue
		}
		plaintext := policyv1alpha1.PlaintextOverrider{Path: pointer(d.path)}
		switch {
		case d.to == nil:
			plaintext.Operator = policyv1alpha1.OverriderOpRemove
		case d.from == nil:
			plaintext.Operator = policyv1alpha1.OverriderOpAdd
		default:
			plaintext.Operator = policyv1alpha1.OverriderOpReplace
		}
		if d.to != nil {
			raw, err := json.Marshal(d.to)
			if err != nil {
				return result, fmt.Errorf("writing %s: %w", d.field, err)
			}
			plaintext.Value = apiextensionsv1.JSON{Raw: raw}
		}
		result.Plaintext = append(result.Plaintext, plaintext)
	}
	result.LabelsOverrider = labels.overriders()
	result.AnnotationsOverrider = annotations.overriders()
	return result, nil
}

// metadataChange collects the changes of labels or annotations.
type metadataChange struct{ set, removed map[string]string }

func (c *metadataChange) record(from, to map[string]any, field string, d difference) {
	keys := d.path[2:]
	if len(keys) == 0 { // all of them are new, or none is left
		for _, entries := range []any{d.from, d.to} {
			object, _ := entries.(map[string]any)
			for key := range object {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		if value, ok := lookup(to, []string{"metadata", field, key}).(string); ok {
			c.set = put(c.set, key, value)
		} else if before, ok := lookup(from, []string{"metadata", field, key}).(string); ok {
			c.removed = put(c.removed, key, before)
		}
	}
}

func put(entries map[string]string, key, value string) map[string]string {
	if entries == nil {
		entries = map[string]string{}
	}
	entries[key] = value
	return entries
}

func (c *metadataChange) overriders() []policyv1alpha1.LabelAnnotationOverrider {
	var list []policyv1alpha1.LabelAnnotationOverrider
	if len(c.set) > 0 {
		list = append(list, policyv1alpha1.LabelAnnotationOverrider{Operator: policyv1alpha1.OverriderOpAdd, Value: c.set})
	}
	if len(c.removed) > 0 {
		list = append(list, policyv1alpha1.LabelAnnotationOverrider{Operator: policyv1alpha1.OverriderOpRemove, Value: c.removed})
	}
	return list
}

// imageOverriders returns the overriders for another image of a container.
func imageOverriders(d difference) ([]policyv1alpha1.ImageOverrider, bool) {
	n := len(d.path)
	if n < 4 || d.path[n-1] != "image" || d.path[n-3] != "containers" && d.path[n-3] != "initContainers" {
		return nil, false
	}
	if _, err := strconv.Atoi(d.path[n-2]); err != nil {
		return nil, false
	}
	from, isText := d.from.(string)
	to, areTexts := d.to.(string)
	if !isText || !areTexts {
		return nil, false
	}
	overriders, ok := override.ImageOverriders(from, to)
	for i := range overriders {
		overriders[i].Predicate = &policyv1alpha1.ImagePredicate{Path: pointer(d.path)}
	}
	return overriders, ok
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(token))
	}
	return b.String()
}
