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
	"github.com/cellplane/cellplane/internal/difference"
	"github.com/cellplane/cellplane/internal/override"
)

// maxOverriders is how many overriders of a kind a rule may have.
const maxOverriders = 256

// overridersOf returns the overriders that turn a template into the object of a cluster.
func overridersOf(template, object *unstructured.Unstructured) (policyv1alpha1.Overriders, error) {
	overriders, err := compose(template.Object, object.Object, difference.Of(template.Object, object.Object))
	if err != nil || len(overriders.Plaintext) <= maxOverriders && len(overriders.ImageOverrider) <= maxOverriders {
		return overriders, err
	}
	return compose(template.Object, object.Object, coarse(template.Object, object.Object))
}

// coarse returns the differing fields of the root, as a whole. Metadata is excepted: it holds the identity.
func coarse(from, to map[string]any) []difference.Difference {
	var found []difference.Difference
	for _, d := range difference.Of(from, to) {
		path := d.Path[:1]
		if d.Path[0] == "metadata" {
			path = d.Path[:min(2, len(d.Path))]
		}
		known := func(seen difference.Difference) bool { return slices.Equal(seen.Path, path) }
		if !slices.ContainsFunc(found, known) {
			found = append(found, difference.Difference{Path: path, From: lookup(from, path), To: lookup(to, path)})
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

func compose(from, to map[string]any, differences []difference.Difference) (policyv1alpha1.Overriders, error) {
	var result policyv1alpha1.Overriders
	labels, annotations := metadataChange{}, metadataChange{}
	for _, d := range differences {
		switch {
		case len(d.Path) >= 2 && d.Path[0] == "metadata" && d.Path[1] == "labels":
			labels.record(from, to, "labels", d)
			continue
		case len(d.Path) >= 2 && d.Path[0] == "metadata" && d.Path[1] == "annotations":
			annotations.record(from, to, "annotations", d)
			continue
		}
		if images, ok := imageOverriders(d); ok {
			result.ImageOverrider = append(result.ImageOverrider, images...)
			continue
		}
		plaintext := policyv1alpha1.PlaintextOverrider{Path: pointer(d.Path)}
		switch {
		case d.To == nil:
			plaintext.Operator = policyv1alpha1.OverriderOpRemove
		case d.From == nil:
			plaintext.Operator = policyv1alpha1.OverriderOpAdd
		default:
			plaintext.Operator = policyv1alpha1.OverriderOpReplace
		}
		if d.To != nil {
			raw, err := json.Marshal(d.To)
			if err != nil {
				return result, fmt.Errorf("writing %s: %w", d.Field, err)
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

func (c *metadataChange) record(from, to map[string]any, field string, d difference.Difference) {
	keys := d.Path[2:]
	if len(keys) == 0 { // all of them are new, or none is left
		for _, entries := range []any{d.From, d.To} {
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
func imageOverriders(d difference.Difference) ([]policyv1alpha1.ImageOverrider, bool) {
	n := len(d.Path)
	if n < 4 || d.Path[n-1] != "image" || d.Path[n-3] != "containers" && d.Path[n-3] != "initContainers" {
		return nil, false
	}
	if _, err := strconv.Atoi(d.Path[n-2]); err != nil {
		return nil, false
	}
	from, isText := d.From.(string)
	to, areTexts := d.To.(string)
	if !isText || !areTexts {
		return nil, false
	}
	overriders, ok := override.ImageOverriders(from, to)
	for i := range overriders {
		overriders[i].Predicate = &policyv1alpha1.ImagePredicate{Path: pointer(d.Path)}
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
