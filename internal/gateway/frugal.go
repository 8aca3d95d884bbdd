package gateway

import (
	"os"
	"runtime/debug"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/component-base/featuregate"
)

// collectAt is how much the heap may grow before it is collected. What a gateway holds for long is small, and it makes much garbage: with
// the default it would collect all the time for nothing.
const collectAt = 400

// tuneCollector applies collectAt, unless the operator has chosen something.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// withoutTracing turns the tracing filter of the chain off, which costs as much as routing a request does, and has nowhere to send
// traces to.
type withoutTracing struct{ featuregate.FeatureGate }

// Enabled implements featuregate.FeatureGate.
func (g withoutTracing) Enabled(feature featuregate.Feature) bool {
	return feature != features.APIServerTracing && g.FeatureGate.Enabled(feature)
}
