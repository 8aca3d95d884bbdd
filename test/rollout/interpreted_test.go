package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout/clonesettest"
	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
	"github.com/cellplane/cellplane/internal/testenv"
)

// fleet is a GameFleet, the made-up kind of docs/rollout.md, whose replicas are divided among the members.
type fleet struct{ workload }

func (f *fleet) ref() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "games.example/v1", "kind": "GameFleet"}}
	obj.SetNamespace(f.ns)
	obj.SetName("web")
	return obj
}

// documentedCustomization reads the example of the documentation.
func documentedCustomization(t *testing.T) *configv1alpha1.ResourceInterpreterCustomization {
	t.Helper()
	text, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(text), "```") {
		if source, isYAML := strings.CutPrefix(block, "yaml\n"); isYAML && strings.Contains(source, "kind: ResourceInterpreterCustomization") {
			c := &configv1alpha1.ResourceInterpreterCustomization{}
			if err := yaml.UnmarshalStrict([]byte(source), c); err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	t.Fatal("docs/rollout.md has no ResourceInterpreterCustomization")
	return nil
}

// control runs a controller of GameFleets for the namespace in each member. It ends with the test.
func (f *fleet) control() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	f.t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for seed, name := range slices.Sorted(maps.Keys(members)) {
		controller := &clonesettest.Controller{
			Member: members[name], Model: controllermodel.NewCloneSet(true), Random: rand.New(rand.NewPCG(2, uint64(seed))),
			Spec: fleetSpec, Status: fleetStatus, Revision: imageOf,
		}
		wait.Go(func() { passes(ctx, controller, f.ref()) })
	}
}

// fleetSpec returns what a GameFleet asks for.
func fleetSpec(obj *unstructured.Unstructured) *controllermodel.Spec {
	servers, _, _ := unstructured.NestedInt64(obj.Object, "spec", "servers")
	extra, _, err := unstructured.NestedInt64(obj.Object, "spec", "rolling", "extra")
	if err != nil {
		extra = 1 // of a new copy, which has the bounds of its template
	}
	missing, _, _ := unstructured.NestedInt64(obj.Object, "spec", "rolling", "missing")
	hold, _, _ := unstructured.NestedBool(obj.Object, "spec", "rolling", "hold")
	return &controllermodel.Spec{Replicas: int(servers), Surge: int(extra), Unavailable: int(missing), Paused: hold}
}

func fleetStatus(generation int64, status controllermodel.Status) map[string]any {
	return map[string]any{"generation": generation, "servers": int64(status.Pods), "current": int64(status.Updated), "serving": int64(status.Available)}
}

// edit changes the template.
func (f *fleet) edit(change func(spec map[string]any)) {
	f.t.Helper()
	testenv.Eventually(f.t, "the template can be changed", func(ctx context.Context) (bool, error) {
		obj := f.ref()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		change(obj.Object["spec"].(map[string]any))
		err := cell.Update(ctx, obj)
		return err == nil, err
	})
}

func (f *fleet) setImage(version int) {
	f.t.Helper()
	f.edit(func(spec map[string]any) {
		spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = image(version)
	})
}

// finished waits until all of so many pods have a version, and no member has anything left to do.
func (f *fleet) finished(version, replicas int) {
	f.t.Helper()
	testenv.Eventually(f.t, fmt.Sprintf("all %d pods have version %d", replicas, version), func(ctx context.Context) (bool, error) {
		have, serving := 0, int64(0)
		for name := range members {
			have += f.inMember(name)[image(version)]
			obj := f.ref()
			if err := members[name].Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
				return false, err
			}
			status, _ := obj.Object["status"].(map[string]any)
			if status["generation"] != obj.GetGeneration() || status["servers"] != status["current"] || imageOf(obj) != image(version) {
				return false, fmt.Errorf("%s: %v", name, obj.Object)
			}
			ready, _ := status["serving"].(int64)
			serving += ready
		}
		return have == replicas && serving == int64(replicas), fmt.Errorf("%d pods have it, %d serve", have, serving)
	})
}

// A kind that only a customization describes, that of the documentation, is updated within the bounds of its template, over all members together.
func TestInterpretedRollout(t *testing.T) {
	for _, client := range append(slices.Collect(maps.Values(members)), cell) {
		if err := client.Create(t.Context(), definition("games.example", "v1", "GameFleet")); ctrlclient.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	startEngine(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	f := &fleet{workload{t: t}}
	f.create(ns)
	if err := cell.Create(t.Context(), documentedCustomization(t)); ctrlclient.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	f.ns = ns.Name
	f.control()
	policy := f.divided("GameFleet")
	policy.Spec.ResourceSelectors[0].APIVersion = "games.example/v1"
	f.create(policy)
	obj := f.ref()
	obj.Object["spec"] = map[string]any{
		"servers": int64(9), "rolling": map[string]any{"extra": "10%", "missing": int64(1)},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": image(1)}}}},
	}
	testenv.Eventually(t, "the cell serves GameFleets", func(ctx context.Context) (bool, error) {
		err := cell.Create(ctx, obj.DeepCopy())
		return err == nil, err
	})
	f.finished(1, 9)
	pods := watchPods(t, f.ns, 0, 8, 10)

	f.setImage(2)
	f.finished(2, 9)
	pods.held("an update")

	// Scaled out in the middle. Until all new pods are there, the old number may be what holds.
	f.setImage(3)
	f.begun(3)
	pods.allow(8, 14) // 10 % of 12 are two
	f.edit(func(spec map[string]any) { spec["servers"] = int64(12) })
	f.finished(3, 12)
	pods.held("scaling out during an update")

	pods.allow(11, 14)
	f.edit(func(spec map[string]any) { spec["rolling"].(map[string]any)["hold"] = true })
	f.setImage(4)
	testenv.Eventually(t, "all members wait because it is paused", func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: f.ns, Name: "web-gamefleet"}, binding); err != nil {
			return false, err
		}
		waits := binding.Annotations[names.RolloutWaitsAnnotation]
		return strings.Count(waits, "the rollout is paused") == len(members), errors.New(waits)
	})
	f.edit(func(spec map[string]any) { spec["rolling"].(map[string]any)["hold"] = false })
	f.finished(4, 12)
	pods.held("an update that was paused")
}
