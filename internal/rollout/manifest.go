package rollout

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

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
	default:
		return 0, false
	}
}

func kindOf(obj *unstructured.Unstructured) (Kind, bool) {
	return KindOf(obj.GetAPIVersion(), obj.GetKind())
}

// strategyField returns the name of the field of the spec with the bounds.
func (k Kind) strategyField() string {
	if k == StatefulSet {
		return "updateStrategy"
	}
	return "strategy"
}

// Rolls reports whether a workload is updated step by step, and all of it. A StatefulSet with a partition is not: which of its ordinals are below it is for each
// cluster to say.
func Rolls(obj *unstructured.Unstructured) bool {
	kind, known := kindOf(obj)
	how, _, _ := unstructured.NestedString(obj.Object, "spec", kind.strategyField(), "type")
	spec, _ := obj.Object["spec"].(map[string]any)
	return known && (how == "" || how == "RollingUpdate") && kind.partition(spec) == 0
}

// CopyOf reads a manifest of a workload. It returns nil for kinds that are not planned, and for a manifest that no API server would accept.
func CopyOf(manifest *unstructured.Unstructured) *Copy {
	c := objectCopy(manifest)
	if c == nil {
		return nil
	}
	c.Seq = max(c.Seq, 1)
	c.Command.Revision = RevisionOf(manifest)
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
	c.Command.Paused, _ = spec["paused"].(bool)
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

func (k Kind) bounds(spec map[string]any, replicas int) (Bounds, error) {
	rolling := k.rolling(spec)
	if k == StatefulSet {
		return StatefulSetBounds(replicas, intOrString(rolling["maxUnavailable"]), k.partition(spec))
	}
	return DeploymentBounds(replicas, intOrString(rolling["maxSurge"]), intOrString(rolling["maxUnavailable"]))
}

func (k Kind) partition(spec map[string]any) int {
	if !k.partitions() {
		return 0
	}
	partition, _ := whole64(k.rolling(spec)["partition"])
	return partition
}

func (k Kind) rolling(spec map[string]any) map[string]any {
	strategy, _ := spec[k.strategyField()].(map[string]any)
	rolling, _ := strategy["rollingUpdate"].(map[string]any)
	return rolling
}

func intOrString(value any) *intstr.IntOrString {
	if text, ok := value.(string); ok {
		parsed := intstr.FromString(text)
		return &parsed
	}
	if n, ok := whole64(value); ok {
		parsed := intstr.FromInt32(int32(min(n, maxReplicas))) //nolint:gosec // it is in range
		return &parsed
	}
	return nil
}

// whole64 returns a number as decoders and interpreters produce it.
func whole64(value any) (int, bool) {
	switch n := value.(type) {
	case int64:
		return int(n), true
	case int32:
		return int(n), true
	case int:
		return n, true
	case float64:
		return int(n), true
	default:
		return 0, false
	}
}

// Apply returns a manifest that carries out a command. All but the fields that the planner decides is shared with the manifest, whose pod template must be that
// of the command.
func (e *Entry) Apply(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	kind, _ := kindOf(manifest)
	root := maps.Clone(manifest.Object)
	spec, _ := root["spec"].(map[string]any)
	spec = maps.Clone(spec)
	spec["replicas"] = int64(e.Command.Replicas)
	spec[kind.strategyField()] = map[string]any{"type": "RollingUpdate", "rollingUpdate": kind.budget(&e.Command)}
	if delete(spec, "paused"); e.Command.Paused {
		spec["paused"] = true
	}
	root["spec"] = spec
	return Number(&unstructured.Unstructured{Object: root}, e.Seq, e.Command.Revision)
}

// budget returns the bounds of a command as the API of the kind wants them.
func (k Kind) budget(c *Command) map[string]any {
	if k == StatefulSet {
		budget := map[string]any{"partition": int64(c.Partition)}
		if c.Unavailable > 1 {
			budget["maxUnavailable"] = int64(c.Unavailable) // one is the default, also in clusters that do not know the field
		}
		return budget
	}
	unavailable := c.Unavailable
	if c.Surge == 0 && unavailable == 0 {
		unavailable = 1 // the API refuses zero for both
	}
	return map[string]any{"maxSurge": int64(c.Surge), "maxUnavailable": int64(unavailable)}
}

// Number returns a manifest with the number of its command. The first command has none.
func Number(manifest *unstructured.Unstructured, seq int64, revision string) *unstructured.Unstructured {
	annotations, _, _ := unstructured.NestedMap(manifest.Object, "metadata", "annotations")
	_, had := annotations[names.RolloutCommandAnnotation]
	if seq <= 1 && !had {
		return manifest
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	if delete(annotations, names.RolloutCommandAnnotation); seq > 1 {
		annotations[names.RolloutCommandAnnotation] = fmt.Sprintf("%d/%s", seq, revision)
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
	return seq, revision
}

// Live is a workload in a member: what it was told, and how far it is.
type Live struct {
	// Copy is what the object says. Its Seq is 0 if it has no number.
	Copy
	// Observation is its state. The number and the revision are those that it carries.
	Observation Observation
	// Stuck is whether the member's controller has given up waiting for the update.
	Stuck bool
}

// LiveOf reads a workload in a member. It returns nil for kinds that are not planned.
func LiveOf(obj *unstructured.Unstructured) *Live {
	c := objectCopy(obj)
	if c == nil {
		return nil
	}
	status, _ := obj.Object["status"].(map[string]any)
	count := func(field string) int {
		n, _ := whole64(status[field])
		return n
	}
	version, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	live := &Live{Copy: *c, Observation: Observation{
		Version: version, Seq: c.Seq, Revision: c.Command.Revision,
		Current: int64(count("observedGeneration")) == obj.GetGeneration() && obj.GetDeletionTimestamp() == nil,
		Pods:    count("replicas"), Available: count("availableReplicas"), Updated: count("updatedReplicas"),
	}}
	live.Observation.Remaining = max(0, live.Observation.Pods-live.Observation.Updated)
	conditions, _ := status["conditions"].([]any)
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		live.Stuck = live.Stuck || condition["type"] == "Progressing" && condition["status"] == "False"
	}
	return live
}

// Short reports whether pods that the object asks for are not available.
func (l *Live) Short() bool { return l.Observation.Available < l.Command.Replicas }

// Progressed reports whether two readings differ in what a plan depends on.
func (l *Live) Progressed(before *Live) bool {
	if l == nil || before == nil {
		return l != before
	}
	a, b := *l, *before
	a.Observation.Version, b.Observation.Version = 0, 0
	return a != b
}
