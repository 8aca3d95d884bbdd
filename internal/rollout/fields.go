package rollout

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rolls reports whether a workload is updated step by step. With Recreate or OnDelete it is not.
func Rolls(obj *unstructured.Unstructured) bool {
	kind, known := kindOf(obj)
	how, _, _ := unstructured.NestedString(obj.Object, "spec", kind.strategyField(), "type")
	return known && (kind == CloneSet || how == "" || how == "RollingUpdate") // all types of a CloneSet roll, in place or not
}

// Paused reports whether a template says that its update is to stop.
func Paused(template *unstructured.Unstructured) bool {
	kind, known := kindOf(template)
	spec, _ := template.Object["spec"].(map[string]any)
	return known && kind.paused(spec)
}

// strategyField returns the name of the field of the spec with the bounds.
func (k Kind) strategyField() string {
	if k == Deployment {
		return "strategy"
	}
	return "updateStrategy"
}

// strategy returns the field with the bounds. That of a CloneSet has them, and those of the others have them one level deeper.
func (k Kind) strategy(spec map[string]any) map[string]any {
	strategy, _ := spec[k.strategyField()].(map[string]any)
	if k == CloneSet {
		return strategy
	}
	rolling, _ := strategy["rollingUpdate"].(map[string]any)
	return rolling
}

func (k Kind) bounds(spec map[string]any, replicas int) (Bounds, error) {
	strategy := k.strategy(spec)
	surge, unavailable := intOrString(strategy["maxSurge"]), intOrString(strategy["maxUnavailable"])
	switch k {
	case StatefulSet:
		partition, _ := whole64(strategy["partition"])
		return StatefulSetBounds(replicas, unavailable, partition)
	case CloneSet:
		return CloneSetBounds(replicas, surge, unavailable, intOrString(strategy["partition"]))
	default:
		return DeploymentBounds(replicas, surge, unavailable)
	}
}

func (k Kind) paused(spec map[string]any) bool {
	if k == CloneSet {
		spec = k.strategy(spec)
	}
	paused, _ := spec["paused"].(bool)
	return paused && k.pauses()
}

// setStrategy writes a command to a spec, as the API of the kind wants it.
func (k Kind) setStrategy(spec map[string]any, c *Command) {
	unavailable := c.unavailable()
	switch k {
	case StatefulSet:
		rolling := map[string]any{"partition": int64(c.Partition)}
		if unavailable > 1 {
			rolling["maxUnavailable"] = int64(unavailable) // one is the default, also in clusters that do not know the field
		}
		spec["updateStrategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": rolling}
	case CloneSet:
		strategy := map[string]any{}
		maps.Copy(strategy, k.strategy(spec)) // how pods are updated, and in which order
		strategy["partition"], strategy["maxSurge"], strategy["maxUnavailable"] = int64(c.Partition), int64(c.Surge), int64(unavailable)
		setPaused(strategy, c.Paused)
		spec["updateStrategy"] = strategy
	default:
		spec["strategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(c.Surge), "maxUnavailable": int64(unavailable)}}
		setPaused(spec, c.Paused)
	}
}

// unavailable returns how many pods may be unavailable, as a cluster is told. A Deployment's API refuses zero for both bounds, and a CloneSet would never go on.
func (c *Command) unavailable() int {
	if c.Surge == 0 && c.Unavailable == 0 {
		return 1
	}
	return c.Unavailable
}

func setPaused(in map[string]any, paused bool) {
	if delete(in, "paused"); paused {
		in["paused"] = true
	}
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
