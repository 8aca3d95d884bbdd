package cellcontrolplane

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	charts "github.com/cellplane/cellplane/deploy/charts"
	"github.com/cellplane/cellplane/internal/admission"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/federate"
	"github.com/cellplane/cellplane/internal/install"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// world is an installation. One control plane stands for the cluster that it runs on, for its hub, and for the API servers of new cells. Nothing runs
// pods there: tests write what a kubelet and the hub manager would.
type world struct {
	config  *rest.Config
	objects client.Client
	release install.Release
	now     atomic.Pointer[time.Time]
	silent  atomic.Bool // API servers of cells do not answer
}

const (
	testCell      = "cell-c"
	testNamespace = "cellplane-system"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	config, err := testenv.StartFederation(t, local.Spec{}).Hub.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{config: config, release: install.Release{Name: "cp", Namespace: testNamespace, Values: map[string]any{
		"clusterAPI":   map[string]any{"enabled": true},
		"cells":        []any{map[string]any{"name": "cell-a"}, map[string]any{"name": "cell-b"}},
		"cellDefaults": map[string]any{"etcd": map[string]any{"replicas": float64(3)}},
	}}}
	w.advance(0)
	w.installDefinitions(t)
	if w.objects, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{testNamespace, names.SystemNamespace, names.ClusterNamespace} {
		w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	w.installFederation(t)
	return w
}

// installDefinitions installs the kinds of the provider, and a minimal definition of Cluster API's Cluster.
func (w *world) installDefinitions(t *testing.T) {
	t.Helper()
	extensions, err := clientset.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	open := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	definitions := []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{
			Name: "clusters." + clusterGroup,
			// The API server reserves groups under x-k8s.io for approved APIs.
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: clusterGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "clusters", Singular: "cluster", Kind: clusterKind.Kind, ListKind: "ClusterList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: clusterKind.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: open}},
			},
		},
	}}
	files, err := fs.Glob(charts.Cellplane(), "cluster-api/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("the chart has the definitions %v (%v)", files, err)
	}
	for _, file := range files {
		content, err := fs.ReadFile(charts.Cellplane(), file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, definition)
	}
	for _, definition := range definitions {
		if _, err := extensions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, definition := range definitions {
		testenv.Eventually(t, definition.Name+" is served", func(ctx context.Context) (bool, error) {
			err := extensions.Discovery().RESTClient().Get().AbsPath("/apis", definition.Spec.Group, definition.Spec.Versions[0].Name, definition.Spec.Names.Plural).Do(ctx).Error()
			return err == nil, err
		})
	}
}

// installFederation writes what an installation and the hub manager write before a cell can be added.
func (w *world) installFederation(t *testing.T) {
	t.Helper()
	manifests, err := install.Render(w.release)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	issued := false
	for _, object := range manifests.Objects {
		text, found, _ := unstructured.NestedString(object.Object, "data", "federation.yaml")
		if !found {
			continue
		}
		config, err := federate.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := federate.Issue(t.Context(), secrets, config); err != nil {
			t.Fatal(err)
		}
		issued = true
	}
	if !issued {
		t.Fatal("the chart has no configuration of the federation")
	}
	if err := admission.Install(t.Context(), w.config, admission.Options{}); err != nil {
		t.Fatal(err)
	}
	spec, err := cells.First("cell-a", "cell-b")
	if err != nil {
		t.Fatal(err)
	}
	w.create(t, &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}, Spec: spec})
	w.reachPhase(t, cellplanev1alpha1.TopologyStable)
}

func (w *world) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreAlreadyExists(w.objects.Create(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, object client.Object, namespace, name string) {
	t.Helper()
	if err := w.objects.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
}

func (w *world) advance(by time.Duration) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if last := w.now.Load(); last != nil {
		start = last.Add(by)
	}
	w.now.Store(&start)
}

// controller returns a new controller, as a process that has just started has. wrap, if not nil, sees all its requests.
func (w *world) controller(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *Controller {
	t.Helper()
	config := rest.CopyConfig(w.config)
	if wrap != nil {
		config.Wrap(wrap)
	}
	objects, err := client.New(config, client.Options{Scheme: w.objects.Scheme(), Mapper: w.objects.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	controller, err := New(config, objects, w.release)
	if err != nil {
		t.Fatal(err)
	}
	controller.Now = func() time.Time { return *w.now.Load() }
	controller.Wrap = w.redirect(t, wrap)
	return controller
}

// redirect sends the requests to the hub and to cells to the one control plane that there is.
func (w *world) redirect(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) func(http.RoundTripper) http.RoundTripper {
	t.Helper()
	direct, err := rest.TransportFor(w.config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(w.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	return func(http.RoundTripper) http.RoundTripper {
		next := http.RoundTripper(roundTripper(func(request *http.Request) (*http.Response, error) {
			if w.silent.Load() && !strings.Contains(request.URL.Host, "-hub-") {
				return nil, errors.New("connection refused")
			}
			request = request.Clone(request.Context())
			request.URL.Scheme, request.URL.Host = target.Scheme, target.Host
			return direct.RoundTrip(request)
		}))
		if wrap != nil {
			next = wrap(next)
		}
		return next
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// cluster creates a Cluster of Cluster API.
func (w *world) cluster(t *testing.T, name string, labels map[string]string) *unstructured.Unstructured {
	t.Helper()
	cluster := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controlPlaneRef": map[string]any{
		"apiGroup": v1alpha1.GroupName, "kind": v1alpha1.Kind, "name": name + "-x7k2p",
	}}}}
	cluster.SetGroupVersionKind(clusterKind)
	cluster.SetNamespace(testNamespace)
	cluster.SetName(name)
	cluster.SetLabels(labels)
	w.create(t, cluster)
	return cluster
}

// controlPlane creates a CellControlPlane that Cluster API has given to a Cluster.
func (w *world) controlPlane(t *testing.T, cluster *unstructured.Unstructured, change func(*v1alpha1.CellControlPlane)) *v1alpha1.CellControlPlane {
	t.Helper()
	plane := &v1alpha1.CellControlPlane{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: cluster.GetName() + "-x7k2p",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterKind.GroupVersion().String(), Kind: clusterKind.Kind, Name: cluster.GetName(), UID: cluster.GetUID(), Controller: ptr.To(true)}},
		},
		Spec: v1alpha1.CellControlPlaneSpec{Version: "v1.36.3", CellSettings: v1alpha1.CellSettings{Weight: 2}},
	}
	if change != nil {
		change(plane)
	}
	w.create(t, plane)
	return plane
}

// reconcile reconciles once, and returns what has become of the CellControlPlane, nil if it is gone.
func (w *world) reconcile(t *testing.T, controller *Controller, name string) *v1alpha1.CellControlPlane {
	t.Helper()
	key := client.ObjectKey{Namespace: testNamespace, Name: name + "-x7k2p"}
	if _, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	plane := &v1alpha1.CellControlPlane{}
	if err := w.objects.Get(t.Context(), key, plane); err != nil {
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return nil
	}
	return plane
}

// expect checks conditions, as "Available=True/Available InTopology=False/NotWanted".
func expect(t *testing.T, plane *v1alpha1.CellControlPlane, conditions string) {
	t.Helper()
	if plane == nil {
		t.Fatalf("the CellControlPlane is gone; want %s", conditions)
	}
	for _, wanted := range strings.Fields(conditions) {
		kind, state, _ := strings.Cut(wanted, "=")
		condition := meta.FindStatusCondition(plane.Status.Conditions, kind)
		if condition == nil {
			t.Errorf("there is no condition %s; want %s", kind, wanted)
			continue
		}
		if got := string(condition.Status) + "/" + condition.Reason; got != state {
			t.Errorf("%s is %s (%s), want %s", kind, got, condition.Message, state)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// runPods writes the status of all workloads of a cell as their controllers do when all pods are ready.
func (w *world) runPods(t *testing.T, cell string) {
	t.Helper()
	selected := client.MatchingLabels{install.PlaneLabel: cell}
	sets, deployments := &appsv1.StatefulSetList{}, &appsv1.DeploymentList{}
	if err := errors.Join(w.objects.List(t.Context(), sets, selected), w.objects.List(t.Context(), deployments, selected)); err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		n := *set.Spec.Replicas
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n, AvailableReplicas: n}
		if err := w.objects.Status().Update(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	for i := range deployments.Items {
		w.setDeployment(t, &deployments.Items[i], *deployments.Items[i].Spec.Replicas, *deployments.Items[i].Spec.Replicas)
	}
}

func (w *world) setDeployment(t *testing.T, deployment *appsv1.Deployment, replicas, updated int32) {
	t.Helper()
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: replicas, ReadyReplicas: replicas, UpdatedReplicas: updated, AvailableReplicas: replicas}
	if err := w.objects.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
}

// serve lets the hub manager find the cell ready.
func (w *world) serve(t *testing.T, name string) {
	t.Helper()
	cell := &cellplanev1alpha1.Cell{}
	w.get(t, cell, "", name)
	for _, condition := range []string{names.CellReady, names.CellGlobalsCopied} {
		meta.SetStatusCondition(&cell.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	if err := w.objects.Status().Update(t.Context(), cell); err != nil {
		t.Fatal(err)
	}
}

func (w *world) topology(t *testing.T) *cellplanev1alpha1.CellTopology {
	t.Helper()
	topology := &cellplanev1alpha1.CellTopology{}
	w.get(t, topology, "", cellplanev1alpha1.CellTopologyName)
	return topology
}

// states returns the cells of the topology with their states, as "cell-a:Normal cell-b:In".
func (w *world) states(t *testing.T) string {
	t.Helper()
	var all []string
	for _, cell := range w.topology(t).Spec.Cells {
		all = append(all, cell.Name+":"+string(cell.State))
	}
	return strings.Join(all, " ")
}

// reachPhase writes a phase, as the hub manager does.
func (w *world) reachPhase(t *testing.T, phase cellplanev1alpha1.TopologyPhase) {
	t.Helper()
	topology := w.topology(t)
	topology.Status.ObservedGeneration, topology.Status.Phase = topology.Generation, phase
	if phase == cellplanev1alpha1.TopologyMoving {
		topology.Status.Change = &cellplanev1alpha1.TopologyChange{Epoch: topology.Generation, MovedObjects: 3, TotalObjects: 7}
	}
	if err := w.objects.Status().Update(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
}

// edit edits the topology.
func (w *world) edit(t *testing.T, edit cells.Edit) {
	t.Helper()
	topology := w.topology(t)
	if err := edit(&topology.Spec); err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Update(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
}

// endChange ends the change of the topology, as the hub manager does when all objects have moved.
func (w *world) endChange(t *testing.T) {
	t.Helper()
	w.reachPhase(t, cellplanev1alpha1.TopologyMoved)
	w.edit(t, func(spec *cellplanev1alpha1.CellTopologySpec) error {
		var kept []cellplanev1alpha1.TopologyCell
		for _, cell := range spec.Cells {
			if cell.State == cellplanev1alpha1.CellStateOut {
				continue
			}
			if cell.State == cellplanev1alpha1.CellStateIn {
				cell.State = cellplanev1alpha1.CellStateNormal
			}
			if cell.TargetWeight != nil {
				cell.Weight, cell.TargetWeight = *cell.TargetWeight, nil
			}
			kept = append(kept, cell)
		}
		spec.Cells = kept
		return nil
	})
}
