package rollout

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
)

// commanded returns the fields of the spec that a command sets besides the replicas.
func (k Kind) commanded() []string {
	if k == Deployment {
		return []string{k.strategyField(), "paused"}
	}
	return []string{k.strategyField()}
}

// fields returns those of the spec that a command sets, with null for those that are not set.
func (k Kind) fields(obj *unstructured.Unstructured) map[string]any {
	spec, _ := obj.Object["spec"].(map[string]any)
	fields := map[string]any{}
	for _, name := range k.commanded() {
		fields[name] = spec[name]
	}
	return fields
}

// withReplaced notes in a manifest that carries out a command what the command has replaced. A copy that keeps its pod template has been told before: what was
// replaced first counts.
func (k Kind) withReplaced(applied, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	own := k.fields(manifest)
	if manifest.GetAnnotations()[names.RolloutReplacedAnnotation] != "" || apiequality.Semantic.DeepEqual(own, k.fields(applied)) {
		return applied
	}
	text, err := json.Marshal(own)
	if err != nil {
		return applied // not possible: it was decoded from JSON
	}
	return withAnnotation(applied, names.RolloutReplacedAnnotation, string(text))
}

// Replaced returns the fields of the spec that the commands of a manifest have replaced, nil if there are none. The annotation may come from a member, so no other
// fields are returned.
func Replaced(manifest *unstructured.Unstructured) map[string]any {
	kind, known := kindOf(manifest)
	if !known {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(manifest.GetAnnotations()[names.RolloutReplacedAnnotation]), &fields); err != nil {
		return nil
	}
	commanded := kind.commanded()
	maps.DeleteFunc(fields, func(name string, _ any) bool { return !slices.Contains(commanded, name) })
	return fields
}

// Grants reports whether a manifest carries a command that decides about a field of its spec besides the replicas and the pod template, such as maxSurge. What others write
// there does not last.
func Grants(manifest *unstructured.Unstructured, field string) bool {
	kind, known := kindOf(manifest)
	if !known || manifest.GetAnnotations()[names.RolloutCommandAnnotation] == "" {
		return false
	}
	rest, is := strings.CutPrefix(field, "spec."+kind.strategyField())
	if kind == CloneSet {
		return is && slices.Contains([]string{".partition", ".maxSurge", ".maxUnavailable"}, rest)
	}
	return is && (rest == "" || rest[0] == '.')
}

// Restoring returns a merge patch that gives replaced fields back to an object.
func Restoring(live *unstructured.Unstructured, replaced map[string]any) (map[string]any, error) {
	kind, known := kindOf(live)
	if !known || len(replaced) == 0 {
		return nil, nil
	}
	has, err := json.Marshal(kind.fields(live))
	if err != nil {
		return nil, err
	}
	own, err := json.Marshal(replaced)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(has, own)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	return spec, json.Unmarshal(patch, &spec)
}
