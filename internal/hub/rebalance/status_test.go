package rebalance

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestPublish has several hub managers publish the progress of a change.
func TestPublish(t *testing.T) {
	config, err := testenv.StartFederation(t, local.Spec{}).Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	topology := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}}
	topology.Spec.Cells = []cellplanev1alpha1.TopologyCell{{Name: "cell-a", Weight: 1, State: cellplanev1alpha1.CellStateNormal}}
	if err := hub.Create(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	read := func() *cellplanev1alpha1.CellTopology {
		t.Helper()
		found := &cellplanev1alpha1.CellTopology{}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(topology), found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	begin := func(through client.Client) *change {
		return &change{Controller: &Controller{Hub: through, Fresh: hub}, topology: read()}
	}
	publish := func(c *change, phase cellplanev1alpha1.TopologyPhase) error {
		status := c.status()
		status.Phase = phase
		setSettled(status, c.topology.Generation, metav1.ConditionFalse, "Test", string(phase))
		return c.publish(t.Context(), status)
	}
	expect := func(t *testing.T, phase cellplanev1alpha1.TopologyPhase) {
		t.Helper()
		if found := read().Status.Phase; found != phase {
			t.Errorf("the phase is %s, want %s", found, phase)
		}
	}
	t.Run("a former hub manager changes nothing", func(t *testing.T) {
		former, next := begin(hub), begin(hub)
		for _, phase := range []cellplanev1alpha1.TopologyPhase{cellplanev1alpha1.TopologyFencing, cellplanev1alpha1.TopologyMoving} {
			if err := publish(next, phase); err != nil {
				t.Fatal(err)
			}
		}
		if err := publish(former, cellplanev1alpha1.TopologyFencing); !errors.Is(err, errOverwritten) {
			t.Errorf("the former hub manager got %v", err)
		}
		expect(t, cellplanev1alpha1.TopologyMoving)
	})
	t.Run("others may write other fields", func(t *testing.T) {
		c := begin(hub)
		labels := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"shop":"open"}}}`))
		if err := hub.Patch(t.Context(), read(), labels); err != nil {
			t.Fatal(err)
		}
		if err := publish(c, cellplanev1alpha1.TopologyMoved); err != nil {
			t.Error(err)
		}
		expect(t, cellplanev1alpha1.TopologyMoved)
	})
	t.Run("an answer is lost", func(t *testing.T) {
		errLost, lose := errors.New("lost"), true
		c := begin(interceptor.NewClient(hub, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if err := c.SubResource(sub).Patch(ctx, object, patch, options...); err != nil || !lose {
					return err
				}
				return errLost
			},
		}))
		if err := publish(c, cellplanev1alpha1.TopologyFencing); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		lose = false
		if err := publish(c, cellplanev1alpha1.TopologyMoving); err != nil {
			t.Error(err)
		}
		expect(t, cellplanev1alpha1.TopologyMoving)
	})
}
