package cellcontrolplane

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/install"
	"github.com/cellplane/cellplane/internal/testenv"
)

// TestCellControlPlanes follows cells from their creation to their end.
func TestCellControlPlanes(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the life of a cell", w.testLife},
		{"killed after each write", w.testKilled},
		{"paused", w.testPaused},
		{"templates", w.testTemplates},
		{"a process", w.testProcess},
		{"names that are taken", w.testNames},
		{"deletions that would lose objects are refused", w.testRefusedDeletions},
	} {
		t.Run(test.name, test.run)
	}
}

// apiServer returns the Deployment of the API servers of a cell.
func (w *world) apiServer(t *testing.T, cell string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	w.get(t, deployment, testNamespace, "cp-"+cell+"-apiserver")
	return deployment
}

// registeredAPIServers returns how many API servers the hub knows of.
func (w *world) registeredAPIServers(t *testing.T, name string) int32 {
	t.Helper()
	cell := &cellplanev1alpha1.Cell{}
	w.get(t, cell, "", name)
	return cell.Spec.Endpoint.APIServers
}

func (w *world) testLife(t *testing.T) {
	controller := w.controller(t, nil)
	controller.Linger = time.Minute
	step := func() *v1alpha1.CellControlPlane { t.Helper(); return w.reconcile(t, controller, testCell) }
	w.silent.Store(true)
	cluster := w.cluster(t, testCell, nil)
	w.controlPlane(t, cluster, func(plane *v1alpha1.CellControlPlane) { plane.OwnerReferences = nil })
	if plane := step(); len(plane.Finalizers) > 0 || len(plane.Status.Conditions) > 0 {
		t.Fatalf("one that Cluster API has not given to a Cluster was touched: %+v", plane)
	}
	plane := step()
	base := plane.DeepCopy()
	plane.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterKind.GroupVersion().String(), Kind: clusterKind.Kind, Name: testCell, UID: cluster.GetUID()}}
	if err := w.objects.Patch(t.Context(), plane, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}

	// Pods do not run yet.
	plane = step()
	expect(t, plane, "Applied=True/Applied CertificatesAvailable=True/Issued EtcdClusterAvailable=False/NoMajority Available=False/NotAnswering ScalingUp=True/ScalingUp Paused=False/NotPaused")
	if plane.Status.Initialization.ControlPlaneInitialized != nil || plane.Spec.ControlPlaneEndpoint.Host != "" || plane.Status.Version != "" {
		t.Errorf("it is initialized before it answers: %+v", plane)
	}
	w.runPods(t, testCell)
	expect(t, step(), "EtcdClusterAvailable=True/Available Available=False/NotAnswering ScalingUp=False/NotScalingUp RollingOut=False/NotRollingOut")

	// They answer.
	w.silent.Store(false)
	plane = step()
	expect(t, plane, "Available=True/Available InTopology=False/NotWanted")
	host := "cp-cell-c-apiserver." + testNamespace + ".svc"
	if !ptr.Deref(plane.Status.Initialization.ControlPlaneInitialized, false) || plane.Spec.ControlPlaneEndpoint != (v1alpha1.APIEndpoint{Host: host, Port: 6443}) ||
		plane.Status.Version != "v1.36.3" || !ptr.Deref(plane.Status.ExternalManagedControlPlane, false) || *plane.Status.ReadyReplicas != 2 || *plane.Status.UpToDateReplicas != 2 || *plane.Status.AvailableReplicas != 2 {
		t.Errorf("it is not what Cluster API expects: %+v %+v", plane.Spec, plane.Status)
	}
	w.checkSecrets(t, plane, host)
	if n := w.registeredAPIServers(t, testCell); n != 2 {
		t.Errorf("the hub knows of %d API servers", n)
	}
	if states := w.states(t); states != "cell-a:Normal cell-b:Normal" {
		t.Errorf("a cell without the label has changed the topology: %s", states)
	}

	// It joins.
	cluster.SetLabels(map[string]string{names.TopologyLabel: "true"})
	if err := w.objects.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	expect(t, step(), "InTopology=False/CellNotReady")
	w.serve(t, testCell)
	w.edit(t, cells.Weight("cell-a", 2))
	expect(t, step(), "InTopology=False/TopologyChanging")
	w.edit(t, cells.Reverse)
	w.endChange(t)
	expect(t, step(), "InTopology=False/Joining")
	if topology := w.topology(t); w.states(t) != "cell-a:Normal cell-b:Normal cell-c:In" || topology.Spec.Cells[2].Weight != 2 {
		t.Fatalf("the topology is %s", w.states(t))
	}
	w.endChange(t)
	expect(t, step(), "InTopology=True/Joined")

	w.testScale(t, step)
	w.testVersion(t, step)

	// It leaves.
	if err := w.objects.Delete(t.Context(), step()); err != nil {
		t.Fatal(err)
	}
	expect(t, step(), "Deleting=True/Draining")
	if states := w.states(t); states != "cell-a:Normal cell-b:Normal cell-c:Out" {
		t.Fatalf("the topology is %s", states)
	}
	w.reachPhase(t, cellplanev1alpha1.TopologyMoving)
	plane = step()
	expect(t, plane, "Deleting=True/Draining")
	if message := plane.Status.Conditions[slices.IndexFunc(plane.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Deleting" })].Message; message != "3 of 7 objects have moved." {
		t.Errorf("the progress is %q", message)
	}
	w.endChange(t)
	expect(t, step(), "Deleting=True/Settling")
	w.reachPhase(t, cellplanev1alpha1.TopologyStable)
	expect(t, step(), "Deleting=True/Lingering")
	w.advance(30 * time.Second)
	expect(t, step(), "Deleting=True/Lingering")
	w.apiServer(t, testCell) // it still runs
	w.advance(31 * time.Second)
	if plane := step(); plane != nil {
		t.Fatalf("it is still there: %+v", plane)
	}
	w.gone(t, testCell)
}

// checkSecrets checks the Secrets of Cluster API.
func (w *world) checkSecrets(t *testing.T, plane *v1alpha1.CellControlPlane, host string) {
	t.Helper()
	for _, purpose := range []string{"kubeconfig", "ca", "etcd", "proxy", "sa"} {
		secret := &corev1.Secret{}
		w.get(t, secret, testNamespace, testCell+"-"+purpose)
		if secret.Type != secretType || secret.Labels[clusterNameLabel] != testCell || !metav1.IsControlledBy(secret, plane) {
			t.Errorf("the Secret %s is %+v", secret.Name, secret.ObjectMeta)
		}
		if purpose != "kubeconfig" {
			if len(secret.Data["tls.crt"]) == 0 || len(secret.Data["tls.key"]) == 0 {
				t.Errorf("the Secret %s has no key", secret.Name)
			}
			continue
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
		if err != nil || config.Host != "https://"+host+":6443" || len(config.CertData) == 0 {
			t.Errorf("the kubeconfig leads to %+v (%v)", config, err)
		}
	}
}

// testScale scales API servers. The hub knows of all that may run at any time.
func (w *world) testScale(t *testing.T, step func() *v1alpha1.CellControlPlane) {
	t.Helper()
	scale := func(replicas string) {
		t.Helper()
		if err := w.objects.SubResource("scale").Patch(t.Context(), step(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+replicas+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	scale("3")
	expect(t, step(), "ScalingUp=True/ScalingUp")
	if n, deployment := w.registeredAPIServers(t, testCell), w.apiServer(t, testCell); n != 3 || *deployment.Spec.Replicas != 3 {
		t.Errorf("%d API servers are wanted, and the hub knows of %d", *deployment.Spec.Replicas, n)
	}
	w.setDeployment(t, w.apiServer(t, testCell), 3, 3)
	expect(t, step(), "ScalingUp=False/NotScalingUp ScalingDown=False/NotScalingDown")
	scale("1")
	expect(t, step(), "ScalingDown=True/ScalingDown")
	if n, deployment := w.registeredAPIServers(t, testCell), w.apiServer(t, testCell); n != 3 || *deployment.Spec.Replicas != 1 {
		t.Errorf("%d API servers are wanted, 3 run, and the hub knows of %d", *deployment.Spec.Replicas, n)
	}
	deployment := w.apiServer(t, testCell)
	w.setDeployment(t, deployment, 1, 1)
	plane := step()
	expect(t, plane, "ScalingDown=False/NotScalingDown InTopology=True/Joined")
	if n := w.registeredAPIServers(t, testCell); n != 1 || *plane.Status.Replicas != 1 || plane.Status.Selector == "" {
		t.Errorf("the hub knows of %d API servers, the status is %+v", n, plane.Status)
	}
}

// testVersion rolls another version out.
func (w *world) testVersion(t *testing.T, step func() *v1alpha1.CellControlPlane) {
	t.Helper()
	plane := step()
	change := func(edit func()) error {
		base := plane.DeepCopy()
		edit()
		return w.objects.Patch(t.Context(), plane, client.MergeFrom(base))
	}
	if err := change(func() { plane.Spec.Version = "1.37.0" }); err != nil {
		t.Fatal(err)
	}
	plane = step()
	expect(t, plane, "RollingOut=True/RollingOut")
	image := w.apiServer(t, testCell).Spec.Template.Spec.Containers[0].Image
	if !strings.HasSuffix(image, "/kube-apiserver:v1.37.0") || plane.Status.Version != "v1.36.3" || *plane.Status.UpToDateReplicas != 0 {
		t.Errorf("the image is %s, the status %+v", image, plane.Status)
	}
	w.runPods(t, testCell)
	plane = step()
	expect(t, plane, "RollingOut=False/NotRollingOut")
	if plane.Status.Version != "v1.37.0" || *plane.Status.UpToDateReplicas != 1 {
		t.Errorf("the status is %+v", plane.Status)
	}
	err := change(func() { plane.Spec.Etcd.Replicas = ptr.To[int32](5) })
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "etcd.replicas cannot be changed") {
		t.Errorf("another number of members: %v", err)
	}
}

// gone checks that nothing is left of a cell.
func (w *world) gone(t *testing.T, cell string) {
	t.Helper()
	selected := []client.ListOption{client.InNamespace(testNamespace), client.MatchingLabels{install.PlaneLabel: cell}}
	for _, kind := range []string{"apps/v1 StatefulSet", "apps/v1 Deployment", "v1 Service", "v1 ConfigMap", "v1 Secret", "v1 PersistentVolumeClaim", "policy/v1 PodDisruptionBudget", "networking.k8s.io/v1 NetworkPolicy"} {
		version, name, _ := strings.Cut(kind, " ")
		testenv.Eventually(t, "there is no "+name+" of "+cell, func(ctx context.Context) (bool, error) {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(version)
			list.SetKind(name + "List")
			err := w.objects.List(ctx, list, selected...)
			return err == nil && len(list.Items) == 0, err
		})
	}
	if err := w.objects.Get(t.Context(), client.ObjectKey{Name: cell}, &cellplanev1alpha1.Cell{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub has the Cell: %v", err)
	}
	secrets := &corev1.SecretList{}
	if err := w.objects.List(t.Context(), secrets, client.InNamespace(names.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		if strings.HasPrefix(secrets.Items[i].Name, cell+"-") {
			t.Errorf("the hub has the Secret %s", secrets.Items[i].Name)
		}
	}
	told := &corev1.SecretList{}
	if err := w.objects.List(t.Context(), told, client.InNamespace(testNamespace), client.MatchingLabels{clusterNameLabel: cell}); err != nil || len(told.Items) > 0 {
		t.Errorf("%d Secrets of Cluster API are left (%v)", len(told.Items), err)
	}
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind)
	cluster.SetNamespace(testNamespace)
	cluster.SetName(cell)
	if err := w.objects.Delete(t.Context(), cluster); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func (w *world) testRefusedDeletions(t *testing.T) {
	controller := w.controller(t, nil)
	controller.Linger = 0
	step := func() *v1alpha1.CellControlPlane { t.Helper(); return w.reconcile(t, controller, testCell) }
	w.controlPlane(t, w.cluster(t, testCell, map[string]string{names.TopologyLabel: "true"}), nil)
	step()
	w.runPods(t, testCell)
	step()
	w.serve(t, testCell)
	expect(t, step(), "InTopology=False/Joining")
	if err := w.objects.Delete(t.Context(), step()); err != nil {
		t.Fatal(err)
	}
	kept := func(conditions, states string) {
		t.Helper()
		expect(t, step(), conditions)
		if got := w.states(t); got != states {
			t.Fatalf("the topology is %s, want %s", got, states)
		}
		w.apiServer(t, testCell)
	}
	kept("Deleting=True/TopologyChanging", "cell-a:Normal cell-b:Normal cell-c:In")
	w.endChange(t)
	w.edit(t, cells.Weight("cell-a", 3))
	kept("Deleting=True/TopologyChanging", "cell-a:Normal cell-b:Normal cell-c:Normal")
	w.edit(t, cells.Reverse)
	w.endChange(t)

	// The others have failed: it is the last one.
	w.edit(t, cells.Fail("cell-a"))
	w.edit(t, cells.Fail("cell-b"))
	kept("Deleting=True/LastCell", "cell-a:Failed cell-b:Failed cell-c:Normal")
	for _, name := range []string{"cell-a", "cell-b"} {
		w.edit(t, cells.Rejoin(name))
		w.endChange(t)
	}

	// It has failed.
	w.edit(t, cells.Fail(testCell))
	kept("Deleting=True/CellFailed", "cell-a:Normal cell-b:Normal cell-c:Failed")
	// Somebody gives up what only it has: the rules of the topology let that happen once its share was taken over.
	topology := w.topology(t)
	topology.Status.FencedEpoch = topology.Generation
	topology.Status.ObservedGeneration = topology.Generation
	if err := w.objects.Status().Update(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	w.edit(t, func(spec *cellplanev1alpha1.CellTopologySpec) error { spec.Cells = spec.Cells[:2]; return nil })
	kept("Deleting=True/Settling", "cell-a:Normal cell-b:Normal")

	// The hub does not answer.
	lost := w.controller(t, nil)
	lost.Wrap = func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	}
	expect(t, w.reconcile(t, lost, testCell), "Deleting=True/HubNotReached")
	w.apiServer(t, testCell)

	w.reachPhase(t, cellplanev1alpha1.TopologyStable)
	if plane := step(); plane != nil {
		t.Fatalf("it is still there: %+v", plane.Status)
	}
	w.gone(t, testCell)
}

func (w *world) testNames(t *testing.T) {
	controller := w.controller(t, nil)
	for _, test := range []struct{ name, reason string }{
		{"cell-a", "NameTaken"},                        // the values of the release list it
		{"elsewhere", "NameTaken"},                     // it is in the federation, at another address
		{"a-name-that-is-too-long-for", "InvalidSpec"}, // the chart refuses it
		{"hub", "InvalidSpec"},
	} {
		if test.name == "elsewhere" {
			w.create(t, &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: test.name}, Spec: cellplanev1alpha1.CellSpec{
				Endpoint:    cellplanev1alpha1.CellEndpoint{Server: "https://elsewhere.example:6443", CABundle: []byte("ca")},
				Credentials: cellplanev1alpha1.CellCredentials{SecretRef: cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: "mine"}},
				Etcd:        cellplanev1alpha1.CellEtcd{Endpoints: []string{"https://elsewhere.example:2379"}, SecretRef: cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: "mine"}},
			}})
		}
		w.controlPlane(t, w.cluster(t, test.name, nil), nil)
		plane := w.reconcile(t, controller, test.name)
		expect(t, plane, "Applied=False/"+test.reason)
		if len(plane.Finalizers) > 0 {
			t.Errorf("%s has the finalizers %v", test.name, plane.Finalizers)
		}
		if err := w.objects.Delete(t.Context(), plane); err != nil {
			t.Error(err)
		}
	}
	// Its Secret belongs to somebody else.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "cell-d-kubeconfig"}, Data: map[string][]byte{"value": []byte("mine")}}
	w.create(t, secret)
	plane := w.controlPlane(t, w.cluster(t, "cell-d", nil), nil)
	if _, err := controller.Reconcile(t.Context(), request(plane)); err == nil || !strings.Contains(err.Error(), "it is not that of this CellControlPlane") {
		t.Errorf("it was answered %v", err)
	}
	w.get(t, secret, testNamespace, secret.Name)
	w.get(t, plane, testNamespace, plane.Name)
	expect(t, plane, "Applied=False/ApplyFailed")
	if string(secret.Data["value"]) != "mine" {
		t.Error("a Secret of somebody else was replaced")
	}
	if err := w.objects.Delete(t.Context(), plane); err != nil {
		t.Fatal(err)
	}
	if plane := w.reconcile(t, controller, "cell-d"); plane != nil {
		t.Errorf("it is still there: %+v", plane.Status)
	}
	w.gone(t, "cell-d")
	w.get(t, secret, testNamespace, secret.Name)
}

func (w *world) testPaused(t *testing.T) {
	controller := w.controller(t, nil)
	cluster := w.cluster(t, testCell, nil)
	plane := w.controlPlane(t, cluster, func(plane *v1alpha1.CellControlPlane) { plane.Annotations = map[string]string{pausedAnnotation: ""} })
	step := func() *v1alpha1.CellControlPlane { t.Helper(); return w.reconcile(t, controller, testCell) }
	untouched := func() {
		t.Helper()
		now := step()
		expect(t, now, "Paused=True/Paused")
		if len(now.Finalizers) > 0 {
			t.Error("it was changed while it was paused")
		}
	}
	untouched()
	patch := func(object client.Object, text string) {
		t.Helper()
		if err := w.objects.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	patch(cluster, `{"spec":{"paused":true}}`)
	patch(plane, `{"metadata":{"annotations":null}}`)
	untouched()
	patch(cluster, `{"spec":{"paused":false}}`)
	expect(t, step(), "Paused=False/NotPaused Applied=True/Applied")
	if err := w.objects.Delete(t.Context(), step()); err != nil {
		t.Fatal(err)
	}
	if plane := step(); plane != nil { // it has never been in the topology
		t.Errorf("it is still there: %+v", plane.Status)
	}
	w.gone(t, testCell)
}

// testTemplates makes a CellControlPlane of a template, as Cluster API does for a ClusterClass.
func (w *world) testTemplates(t *testing.T) {
	template := &v1alpha1.CellControlPlaneTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "small"}}
	template.Spec.Template.Spec = v1alpha1.CellSettings{Weight: 3, Etcd: v1alpha1.EtcdSettings{Replicas: ptr.To[int32](1), ProgramSettings: v1alpha1.ProgramSettings{ExtraArgs: []string{"--quota-backend-bytes=4294967296"}}}}
	w.create(t, template)
	spec, err := content(template, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	spec["version"], spec["replicas"] = "v1.36.3", int64(1)
	cluster := w.cluster(t, testCell, nil)
	made := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	made.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	made.SetNamespace(testNamespace)
	made.SetName(testCell + "-x7k2p")
	made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterKind.GroupVersion().String(), Kind: clusterKind.Kind, Name: testCell, UID: cluster.GetUID()}})
	w.create(t, made)
	controller := w.controller(t, nil)
	expect(t, w.reconcile(t, controller, testCell), "Applied=True/Applied")
	etcd := &appsv1.StatefulSet{}
	w.get(t, etcd, testNamespace, "cp-cell-c-etcd")
	if *etcd.Spec.Replicas != 1 || !slices.Contains(etcd.Spec.Template.Spec.Containers[0].Args, "--quota-backend-bytes=4294967296") || *w.apiServer(t, testCell).Spec.Replicas != 1 {
		t.Errorf("the etcd is %+v", etcd.Spec)
	}
	if err := w.objects.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if plane := w.reconcile(t, controller, testCell); plane != nil {
		t.Errorf("it is still there: %+v", plane.Status)
	}
	w.gone(t, testCell)
}
