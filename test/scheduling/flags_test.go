package scheduling_test

import (
	"context"
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/enginetest"
	"github.com/cellplane/cellplane/internal/schedule"
)

// An engine with a disabled filter and with --enable-empty-workload-propagation. It is the only engine of its cell,
// so the test does not run in parallel with others that start one there.
func TestPluginsAndEmptyWorkloads(t *testing.T) {
	plugins, err := schedule.ParsePlugins([]string{"*", "-TaintToleration"})
	if err != nil {
		t.Fatal(err)
	}
	stop := enginetest.Start(context.Background(), engine.Config{Cell: "cell-b", Config: otherConfig, HubAPI: hubConfig, Plugins: plugins, EmptyWorkloads: true})
	defer stop()
	w := newWorldIn(t, other, "a", "b")
	w.capacity("a", 3)
	w.taint("b", corev1.Taint{Key: "busy", Effect: corev1.TaintEffectNoSchedule})
	w.policy(aggregated)
	w.create(w.deployment("web", 4))
	w.untilPlaced("web", "a b:4")
	work := w.untilWork("a", "web")
	manifest := &appsv1.Deployment{}
	if err := json.Unmarshal(work.Spec.Workload.Manifests[0].Raw, manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Replicas == nil || *manifest.Spec.Replicas != 0 {
		t.Errorf("spec of the empty workload = %+v", manifest.Spec)
	}
}
