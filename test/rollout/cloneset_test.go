package rollout_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout/clonesettest"
	"github.com/cellplane/cellplane/internal/rollout/controllermodel"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cloneSets is the definition of CloneSets.
func cloneSets() *apiextensionsv1.CustomResourceDefinition {
	return definition("apps.kruise.io", "v1alpha1", "CloneSet")
}

// definition returns the definition of a kind with any fields.
func definition(group, version, kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: singular + "s", Singular: singular, Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: version, Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
}

// cloneSet is a CloneSet whose replicas are divided among the members.
type cloneSet struct{ workload }

const cloneSetVersion = "apps.kruise.io/v1alpha1"

func (c *cloneSet) ref() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": cloneSetVersion, "kind": "CloneSet"}}
	obj.SetNamespace(c.ns)
	obj.SetName("web")
	return obj
}

func newCloneSet(t *testing.T, strategy map[string]any) *cloneSet {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	c := &cloneSet{workload{t: t}}
	c.create(ns)
	c.ns = ns.Name
	c.control()
	policy := c.divided("CloneSet")
	policy.Spec.ResourceSelectors[0].APIVersion = cloneSetVersion
	c.create(policy)
	obj := c.ref()
	obj.Object["spec"] = map[string]any{
		"replicas": int64(9), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "updateStrategy": strategy,
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": image(1)}}},
		},
	}
	testenv.Eventually(t, "the cell serves CloneSets", func(ctx context.Context) (bool, error) {
		err := cell.Create(ctx, obj)
		return err == nil, err
	})
	return c
}

// edit changes the template.
func (c *cloneSet) edit(version int, strategy map[string]any) {
	c.t.Helper()
	testenv.Eventually(c.t, "the template can be changed", func(ctx context.Context) (bool, error) {
		obj := c.ref()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		spec := obj.Object["spec"].(map[string]any)
		spec["updateStrategy"] = strategy
		container := spec["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		container["image"] = image(version)
		err := cell.Update(ctx, obj)
		return err == nil, err
	})
}

// finished waits until so many of nine pods have a version, all are available, and the template says so.
func (c *cloneSet) finished(version int, updated int64) {
	c.t.Helper()
	testenv.Eventually(c.t, fmt.Sprintf("%d pods have version %d, and the template says so", updated, version), func(ctx context.Context) (bool, error) {
		obj := c.ref()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return false, err
		}
		have := 0
		for name := range members {
			have += c.inMember(name)[image(version)]
		}
		status, _ := obj.Object["status"].(map[string]any)
		done := int64(have) == updated && status["observedGeneration"] == obj.GetGeneration() && status["replicas"] == int64(9) && status["updatedReplicas"] == updated && status["availableReplicas"] == int64(9)
		return done, fmt.Errorf("%d pods have it; %v", have, status)
	})
}

// control runs a controller of CloneSets for the namespace in each member: the model of that of OpenKruise, with real objects and pods. Some members update pods in
// place, others recreate them. It ends with the test.
func (c *cloneSet) control() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	c.t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
	for seed, name := range slices.Sorted(maps.Keys(members)) {
		controller := &clonesettest.Controller{
			Member: members[name], Model: controllermodel.NewCloneSet(name == "member1"), Random: rand.New(rand.NewPCG(1, uint64(seed))), Revision: imageOf,
		}
		wait.Go(func() { passes(ctx, controller, c.ref()) })
	}
}

// passes lets a controller do one thing at a time.
func passes(ctx context.Context, controller *clonesettest.Controller, ref *unstructured.Unstructured) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.GetAPIVersion(), "kind": ref.GetKind()}}
		if controller.Member.Get(ctx, ctrlclient.ObjectKeyFromObject(ref), obj) == nil {
			controller.Pass(ctx, obj)
		}
	}
}

func imageOf(obj *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)["image"].(string)
}

// The bounds of a CloneSet, its partition too, hold for all members together. Percentages are of all replicas, rounded once and as OpenKruise does: of nine
// replicas, 10 % of surge are one, 20 % unavailable are one since there is surge, and 40 % that keep their version are four.
func TestCloneSetRollout(t *testing.T) {
	startEngine(t)
	for _, client := range members {
		if err := client.Create(t.Context(), cloneSets()); ctrlclient.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	if err := cell.Create(t.Context(), cloneSets()); ctrlclient.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	strategy := func(partition any, paused bool) map[string]any {
		return map[string]any{"maxSurge": "10%", "maxUnavailable": "20%", "partition": partition, "paused": paused}
	}
	c := newCloneSet(t, strategy("40%", false))
	c.finished(1, 9)
	pods := watchPods(t, c.ns, 0, 8, 10)

	pods.allowUpdated(image(2), 5)
	c.edit(2, strategy("40%", false))
	c.finished(2, 5)
	pods.held("an update with a partition")

	pods.allowUpdated(image(3), 0)
	c.edit(3, strategy(int64(0), true))
	testenv.Eventually(t, "all members wait because it is paused", func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: c.ns, Name: "web-cloneset"}, binding); err != nil {
			return false, err
		}
		waits := binding.Annotations[names.RolloutWaitsAnnotation]
		return strings.Count(waits, "the rollout is paused") == len(members), fmt.Errorf("they wait: %s", waits)
	})
	pods.allowUpdated(image(3), 9)
	c.edit(3, strategy(int64(0), false))
	c.finished(3, 9)
	pods.held("an update that was paused")
}
