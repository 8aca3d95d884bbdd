package replicate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// fixture is a federation and its Replicator.
type fixture struct {
	federation *local.Federation
	hub        *plane
	cells      []*plane

	replicator *Replicator
	cancel     context.CancelFunc
	running    sync.WaitGroup

	mu      sync.Mutex
	reports map[string][]Action
}

func (f *fixture) start(t *testing.T) {
	t.Helper()
	replicator, err := New(f.hub.config, Options{Report: f.report})
	if err != nil {
		t.Fatal(err)
	}
	f.replicator = replicator
	for i := range f.cells {
		f.setCell(t, i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.running.Go(func() { _ = replicator.Start(ctx) })
}

func (f *fixture) stop() {
	f.cancel()
	f.running.Wait()
}

func (f *fixture) setCell(t *testing.T, i int) {
	t.Helper()
	if err := f.replicator.SetCell(f.cells[i].name, f.cells[i].config); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) report(_ string, found Obstacle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reports == nil {
		f.reports = map[string][]Action{}
	}
	f.reports[found.Object] = append(f.reports[found.Object], found.Reason)
}

func (f *fixture) reported(object string) []Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reports[object])
}

func (f *fixture) apiServer(t *testing.T, cell int) *process.Process {
	t.Helper()
	server, err := f.federation.Cells[cell].Process(kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// policy creates a policy on the hub.
func (f *fixture) policy(t *testing.T, name string, finalizers ...string) *unstructured.Unstructured {
	t.Helper()
	return f.hub.create(t, "clusterpropagationpolicies", fmt.Sprintf(`{apiVersion: policy.karmada.io/v1alpha1, kind: ClusterPropagationPolicy,
		metadata: {name: %s, labels: {%s: %s}, finalizers: [%s]}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}}`,
		name, names.ClusterPropagationPolicyPermanentIDLabel, name, strings.Join(finalizers, ",")))
}

// awaitCopy waits until a cell has an exact copy.
func (f *fixture) awaitCopy(t *testing.T, cell *plane, resource string, source *unstructured.Unstructured) {
	t.Helper()
	var diff string
	testenv.Eventually(t, fmt.Sprintf("%s has a copy of %s %s", cell.name, resource, source.GetName()), func(ctx context.Context) (bool, error) {
		object, err := cell.resource(resource, source.GetNamespace()).Get(ctx, source.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		diff = cmp.Diff(essence(resource, source), essence(resource, object))
		if SourceUID(object) != source.GetUID() {
			diff += fmt.Sprintf("source %s, want %s", SourceUID(object), source.GetUID())
		}
		if diff != "" {
			return false, fmt.Errorf("it differs (-source +copy):\n%s", diff)
		}
		return true, nil
	})
}

// essence returns the fields that a copy has in common with its source.
func essence(resource string, object *unstructured.Unstructured) map[string]any {
	content := object.DeepCopy().Object
	for _, rule := range Rules() {
		if rule.adjust != nil && rule.Resource.Resource == resource {
			rule.adjust(content)
		}
	}
	delete(content, "metadata")
	if rule := resourceOf(resource); rule.Group == userpolicy.Group {
		delete(content, "status")
	}
	if resource == "namespaces" {
		delete(content, "spec")
	}
	if resource != "clusters" && resource != "federatedresourcequotas" {
		delete(content, "status")
	}
	content["labels"] = object.GetLabels()
	content["annotations"] = copiedAnnotations(object.GetAnnotations())
	return content
}

func (f *fixture) awaitSecrets(t *testing.T, wanted ...[]string) {
	t.Helper()
	for i, cell := range f.cells {
		testenv.Eventually(t, fmt.Sprintf("%s has the secrets %v", cell.name, wanted[i]), func(ctx context.Context) (bool, error) {
			list, err := cell.resource("secrets", names.ClusterNamespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].GetName())
			}
			slices.Sort(got)
			return slices.Equal(got, wanted[i]), fmt.Errorf("it has %v", got)
		})
	}
}

func (f *fixture) awaitObstacle(t *testing.T, cell string, reason Action, object, message string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s is reported", object), func(context.Context) (bool, error) {
		obstacles := f.replicator.Status()[cell].Obstacles
		return slices.ContainsFunc(obstacles, func(o Obstacle) bool {
			return o.Reason == reason && o.Object == object && strings.Contains(o.Message, message)
		}), fmt.Errorf("obstacles: %v", obstacles)
	})
}

// awaitQuiet waits until all cells have caught up.
func (f *fixture) awaitQuiet(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "all cells have caught up", func(context.Context) (bool, error) {
		all := f.replicator.Status()
		for _, status := range all {
			if !status.CaughtUp() {
				return false, fmt.Errorf("status: %+v", all)
			}
		}
		return true, nil
	})
}

// awaitCaughtUp waits until a cell has a resource as of a resourceVersion of the hub.
func (f *fixture) awaitCaughtUp(t *testing.T, cell, resource, version string) {
	t.Helper()
	testenv.Eventually(t, "the cell has caught up", func(context.Context) (bool, error) {
		upTo := f.replicator.Status()[cell].UpTo
		return len(upTo[resource]) > len(version) || upTo[resource] >= version, fmt.Errorf("up to %v, want %s", upTo, version)
	})
}

// plane is a control plane with clients.
type plane struct {
	name   string
	config *rest.Config
	client dynamic.Interface
}

func newPlane(t *testing.T, c *controlplane.ControlPlane) *plane {
	t.Helper()
	config, err := c.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &plane{name: c.Name(), config: config, client: client}
}

// resourceOf returns one of the copied resources, or that of config maps.
func resourceOf(name string) schema.GroupVersionResource {
	for _, rule := range Rules() {
		if rule.Resource.Resource == name {
			return rule.Resource
		}
	}
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

func (p *plane) resource(name, namespace string) dynamic.ResourceInterface {
	return p.client.Resource(resourceOf(name)).Namespace(namespace)
}

func (p *plane) create(t *testing.T, resource, text string) *unstructured.Unstructured {
	t.Helper()
	object := manifest(t, text)
	created, err := p.resource(resource, object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// get returns an object; a namespaced one is in the namespace of its own name.
func (p *plane) get(t *testing.T, resource, name string) *unstructured.Unstructured {
	t.Helper()
	namespace := ""
	for _, rule := range Rules() {
		if rule.Resource.Resource == resource && rule.Namespaced {
			namespace = name
		}
	}
	object, err := p.resource(resource, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (p *plane) has(t *testing.T, resource, namespace, name string) bool {
	t.Helper()
	_, err := p.resource(resource, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func (p *plane) patch(t *testing.T, resource, namespace, name, patch string) *unstructured.Unstructured {
	t.Helper()
	object, err := p.resource(resource, namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (p *plane) setStatus(t *testing.T, resource, name, status string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(fmt.Sprintf("{status: %s}", status)))
	if err != nil {
		t.Fatal(err)
	}
	object, err := p.resource(resource, "").Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func (p *plane) delete(t *testing.T, resource, namespace, name string) {
	t.Helper()
	if err := p.resource(resource, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) awaitGone(t *testing.T, resource, namespace, name string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s %s is gone from %s", resource, name, p.name), func(ctx context.Context) (bool, error) {
		_, err := p.resource(resource, namespace).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// finalizeNamespace does what the namespace controller does when a namespace is empty.
func (p *plane) finalizeNamespace(t *testing.T, name string) {
	t.Helper()
	object := p.get(t, "namespaces", name)
	unstructured.RemoveNestedField(object.Object, "spec", "finalizers")
	if _, err := p.resource("namespaces", "").Update(t.Context(), object, metav1.UpdateOptions{}, "finalize"); err != nil {
		t.Fatal(err)
	}
	p.awaitGone(t, "namespaces", "", name)
}

// versions returns the resourceVersions of everything that is copied.
func (p *plane) versions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, rule := range Rules() {
		list, err := p.resource(rule.Resource.Resource, "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			all[strings.Join(slices.DeleteFunc([]string{rule.Resource.Resource, object.GetNamespace(), object.GetName()}, func(s string) bool { return s == "" }), "/")] = object.GetResourceVersion()
		}
	}
	return all
}

func manifest(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}
