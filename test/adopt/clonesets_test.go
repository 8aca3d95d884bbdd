package adopt

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/rollout/clonesettest"
	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
)

// controlCloneSets runs a controller for the CloneSets of each member until the test ends. It recreates the pods of a CloneSet whose pod template changes.
func (m *many) controlCloneSets() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	m.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for _, cluster := range m.memberNames {
		wait.Go(func() { m.controlCloneSetsOf(ctx, cluster) })
	}
}

func (m *many) controlCloneSetsOf(ctx context.Context, cluster string) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	controllers := map[string]*clonesettest.Controller{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		cloneSets, err := m.cloneSetsOf(ctx, cluster)
		if err != nil {
			continue // the member may be paused
		}
		for i := range cloneSets {
			obj := &cloneSets[i]
			controller := controllers[obj.GetName()]
			if controller == nil {
				controller = &clonesettest.Controller{Member: m.members[cluster], Model: controllermodel.NewCloneSet(false), Revision: rollout.RevisionOf}
				controllers[obj.GetName()] = controller
			}
			controller.Pass(ctx, obj)
		}
	}
}

func (m *many) cloneSetsOf(ctx context.Context, cluster string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(cloneSetKind)
	err := m.members[cluster].List(ctx, list, client.InNamespace(manyNamespace))
	return list.Items, err
}

// cloneSetRolledOut returns an error if the controller of a CloneSet is not done.
func cloneSetRolledOut(obj *unstructured.Unstructured) error {
	replicas, _, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	status, _, _ := unstructured.NestedMap(obj.Object, "status")
	for field, want := range map[string]int64{"observedGeneration": obj.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas} {
		if status[field] != want {
			return fmt.Errorf("the status is %v with %d replicas in generation %d", status, replicas, obj.GetGeneration())
		}
	}
	return nil
}
