package rollout

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/merge"
)

// Copy is what a manifest of a workload, or its object in a member, says about the fields that the planner decides.
type Copy struct {
	// Seq is the number of its command. One without a number has the first command: a copy is created without one.
	Seq int64
	// Command is what it asks for. The revision of an object is that of the manifest it was written from; empty if it has no number.
	Command Command
}

// KindOf returns the kind of a workload, and whether engines plan for it.
func KindOf(apiVersion, kind string) (Kind, bool) {
	switch {
	case apiVersion == "apps/v1" && kind == "Deployment":
		return Deployment, true
	case apiVersion == "apps/v1" && kind == "StatefulSet":
		return StatefulSet, true
	case (apiVersion == "apps.kruise.io/v1alpha1" || apiVersion == "apps.kruise.io/v1beta1") && kind == "CloneSet":
		return CloneSet, true
	default:
		return 0, false
	}
}

func kindOf(obj *unstructured.Unstructured) (Kind, bool) {
	return KindOf(obj.GetAPIVersion(), obj.GetKind())
}

// CopyOf reads a manifest of a workload. It returns nil for kinds that are not planned, and for a manifest that no API server would accept. A kind that is not
// built in has its command in the annotation.
func CopyOf(manifest *unstructured.Unstructured) *Copy {
	if _, known := kindOf(manifest); !known {
		return markedCopy(manifest)
	}
	c := objectCopy(manifest)
	if c == nil {
		return nil
	}
	c.Seq = max(c.Seq, 1)
	c.Command.Revision = RevisionOf(manifest)
	return c
}

// Told reads the manifest of a Work: what its cluster is told. If it carries the name of its pod template, that counts: a manifest that was made again from the object
// in a member has additions of the member, and would have another name.
func Told(manifest *unstructured.Unstructured) *Copy {
	c := CopyOf(manifest)
	if _, revision := parseMark(manifest.GetAnnotations()[names.RolloutCommandAnnotation]); c != nil && revision != "" {
		c.Command.Revision = revision
	}
	return c
}

// RevisionOf names the pod template of a manifest. Equal pod templates have equal names.
func RevisionOf(manifest *unstructured.Unstructured) string {
	spec, _ := manifest.Object["spec"].(map[string]any)
	return merge.Fingerprint(&unstructured.Unstructured{Object: map[string]any{"template": spec["template"]}})
}

// PodTemplateOf names the pod template of a manifest of any kind, as [RevisionOf] does; empty if it has none.
func PodTemplateOf(manifest *unstructured.Unstructured) string {
	if template, found, err := unstructured.NestedFieldNoCopy(manifest.Object, "spec", "template", "spec"); !found || err != nil || template == nil {
		return ""
	}
	return RevisionOf(manifest)
}

// objectCopy reads the fields of an object, with the number and revision that it carries.
func objectCopy(obj *unstructured.Unstructured) *Copy {
	kind, known := kindOf(obj)
	if !known {
		return nil
	}
	spec, _ := obj.Object["spec"].(map[string]any)
	replicas, set := whole64(spec["replicas"])
	if !set {
		replicas = 1
	}
	bounds, err := kind.bounds(spec, replicas)
	if err != nil {
		return nil
	}
	c := &Copy{Command: Command{Replicas: replicas, Surge: bounds.Surge, Unavailable: bounds.Unavailable, Partition: bounds.Partition}}
	c.Command.Paused = kind.paused(spec)
	c.Seq, c.Command.Revision = parseMark(obj.GetAnnotations()[names.RolloutCommandAnnotation])
	return c
}

// TemplateBounds resolves the bounds of a template for a number of replicas in all clusters.
func TemplateBounds(template *unstructured.Unstructured, replicas int) (Bounds, error) {
	kind, known := kindOf(template)
	if !known {
		return Bounds{}, fmt.Errorf("rollouts of %s %s are not planned", template.GetAPIVersion(), template.GetKind())
	}
	spec, _ := template.Object["spec"].(map[string]any)
	return kind.bounds(spec, replicas)
}

// Apply returns a manifest that carries out a command. All but the fields that the planner decides is shared with the manifest, whose pod template must be that
// of the command.
func (e *Entry) Apply(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	kind, _ := kindOf(manifest)
	root := maps.Clone(manifest.Object)
	spec, _ := root["spec"].(map[string]any)
	spec = maps.Clone(spec)
	spec["replicas"] = int64(e.Command.Replicas)
	kind.setStrategy(spec, &e.Command)
	root["spec"] = spec
	return kind.withReplaced(Number(&unstructured.Unstructured{Object: root}, e.Seq, e.Command.Revision), manifest)
}

// Number returns a manifest with the number of its command. The first command has none, unless its pod template is known by another name.
func Number(manifest *unstructured.Unstructured, seq int64, revision string) *unstructured.Unstructured {
	if seq = max(1, seq); seq == 1 && RevisionOf(manifest) == revision {
		return withMark(manifest, "")
	}
	return withMark(manifest, fmt.Sprintf("%d/%s", seq, revision))
}

// withMark returns a manifest with a mark of its command, or without one if it is empty.
func withMark(manifest *unstructured.Unstructured, mark string) *unstructured.Unstructured {
	return withAnnotation(manifest, names.RolloutCommandAnnotation, mark)
}

// withAnnotation returns a manifest with an annotation, or without it if it is empty.
func withAnnotation(manifest *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	annotations, _, _ := unstructured.NestedMap(manifest.Object, "metadata", "annotations")
	_, had := annotations[key]
	if value == "" && !had {
		return manifest
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	if delete(annotations, key); value != "" {
		annotations[key] = value
	}
	root := maps.Clone(manifest.Object)
	metadata, _ := root["metadata"].(map[string]any)
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = map[string]any{}
	}
	metadata["annotations"] = annotations
	root["metadata"] = metadata
	return &unstructured.Unstructured{Object: root}
}

// SeqOf returns the number of the command that an object carries, 1 if it carries none.
func SeqOf(obj *unstructured.Unstructured) int64 {
	seq, _ := parseMark(obj.GetAnnotations()[names.RolloutCommandAnnotation])
	return max(seq, 1)
}

// parseMark reads a number and a revision; they are zero if the text has none.
func parseMark(text string) (seq int64, revision string) {
	number, revision, found := strings.Cut(text, "/")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || seq < 1 {
		return 0, ""
	}
	revision, _, _ = strings.Cut(revision, "/") // a whole command may follow
	return seq, revision
}
