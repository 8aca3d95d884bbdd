package cellcontrolplane

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/controlplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/install"
	"github.com/cellplane/cellplane/internal/testenv"
)

func request(plane *v1alpha1.CellControlPlane) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(plane)}
}

// content returns a part of an object, as it is sent.
func content(object runtime.Object, path ...string) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	for _, name := range path {
		fields, _ = fields[name].(map[string]any)
	}
	return fields, err
}

// killer kills a process with a write that changes something: nobody gets the answer, and nothing is sent any more. A write of a kind after which a
// process has died is spared.
type killer struct {
	kinds map[string]bool
	end   context.CancelFunc

	mu   sync.Mutex
	dead bool
	last string
}

// every has each write that changes something kill a process; otherwise the first of each kind does.
var every = flag.Bool("cell.every", false, "kill a process with every write")

var errKilled = errors.New("killed")

func (k *killer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.dead {
			return nil, errKilled
		}
		if request.Method == http.MethodGet {
			return next.RoundTrip(request)
		}
		before := versionOf(next, request)
		response, err := next.RoundTrip(request)
		if err != nil || response.StatusCode >= http.StatusMultipleChoices {
			return response, err
		}
		if request.Method != http.MethodPost && versionOf(next, request) == before {
			return response, nil
		}
		kind := kindOf(request)
		if k.kinds[kind] && !*every {
			return response, nil
		}
		k.kinds[kind] = true
		_ = response.Body.Close()
		k.dead, k.last = true, request.Method+" "+request.URL.Path
		k.end()
		return nil, errKilled
	})
}

// kindOf returns what a request does to which resource.
func kindOf(request *http.Request) string {
	path := strings.TrimSuffix(request.URL.Path, "/status")
	if request.Method != http.MethodPost {
		path = path[:strings.LastIndex(path, "/")]
	}
	if path != request.URL.Path && strings.HasSuffix(request.URL.Path, "/status") {
		path += "/status"
	}
	return request.Method + " " + path
}

// versionOf returns the version of the object that a request is about, nothing if there is none.
func versionOf(next http.RoundTripper, request *http.Request) string {
	if request.Method == http.MethodPost {
		return ""
	}
	read := request.Clone(context.WithoutCancel(request.Context()))
	read.Method, read.Body, read.ContentLength, read.GetBody = http.MethodGet, nil, 0, nil
	read.Header = http.Header{"Accept": {"application/json"}}
	read.URL.RawQuery, read.URL.Path = "", strings.TrimSuffix(read.URL.Path, "/status")
	response, err := next.RoundTrip(read)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	var object struct {
		Metadata struct {
			UID, ResourceVersion string
		}
	}
	_ = json.NewDecoder(response.Body).Decode(&object)
	return object.Metadata.UID + "/" + object.Metadata.ResourceVersion
}

// testKilled kills the process with each of its writes. The next one goes on.
func (w *world) testKilled(t *testing.T) {
	cluster := w.cluster(t, testCell, map[string]string{names.TopologyLabel: "true"})
	plane := w.controlPlane(t, cluster, nil)
	killed := w.killRepeatedly(t, plane, func(now *v1alpha1.CellControlPlane) bool {
		return now != nil && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionInTopology)
	})
	if killed < 13 {
		t.Errorf("only %d processes were killed until the cell had joined", killed)
	}
	w.get(t, plane, testNamespace, plane.Name)
	expect(t, plane, "Applied=True/Applied Available=True/Available CertificatesAvailable=True/Issued EtcdClusterAvailable=True/Available InTopology=True/Joined RollingOut=False/NotRollingOut")
	controller := w.controller(t, nil)
	rendered, err := (&run{Controller: controller, plane: plane, cell: testCell}).render()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range rendered.Secrets {
		w.get(t, &corev1.Secret{}, testNamespace, name)
	}
	for _, object := range rendered.Objects {
		w.get(t, object.DeepCopy(), testNamespace, object.GetName())
	}
	w.checkSecrets(t, plane, "cp-cell-c-apiserver."+testNamespace+".svc")
	if !ptr.Deref(plane.Status.Initialization.ControlPlaneInitialized, false) || w.registeredAPIServers(t, testCell) != 2 {
		t.Errorf("the status is %+v", plane.Status)
	}

	if err := w.objects.Delete(t.Context(), plane); err != nil {
		t.Fatal(err)
	}
	killed = w.killRepeatedly(t, plane, func(now *v1alpha1.CellControlPlane) bool { return now == nil })
	if killed < 10 {
		t.Errorf("only %d processes were killed until the cell was gone", killed)
	}
	if states := w.states(t); states != "cell-a:Normal cell-b:Normal" {
		t.Errorf("the topology is %s", states)
	}
	w.gone(t, testCell)
}

// killRepeatedly starts processes, each of which dies with its first write, until one has nothing to write any more and the end is reached. Between them
// goes on what others do. While the topology has the cell, it runs.
func (w *world) killRepeatedly(t *testing.T, plane *v1alpha1.CellControlPlane, end func(*v1alpha1.CellControlPlane) bool) (killed int) {
	t.Helper()
	kinds := map[string]bool{}
	var last *v1alpha1.CellControlPlane
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		k := &killer{kinds: kinds, end: cancel}
		controller := w.controller(t, k.wrap)
		controller.Linger = time.Second
		_, err := controller.Reconcile(ctx, request(plane))
		cancel()
		if k.dead {
			killed++
			if testing.Verbose() {
				t.Logf("killed after %s", k.last)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(w.states(t), testCell) {
			w.apiServer(t, testCell)
			w.get(t, &appsv1.StatefulSet{}, testNamespace, "cp-"+testCell+"-etcd")
		}
		now := &v1alpha1.CellControlPlane{}
		if err := w.objects.Get(t.Context(), client.ObjectKeyFromObject(plane), now); apierrors.IsNotFound(err) {
			now = nil
		} else if err != nil {
			t.Fatal(err)
		}
		if last = now; !k.dead && end(now) {
			return killed
		}
		w.others(t)
	}
	t.Fatalf("the end is not reached after %d processes: %+v", killed, last.Status)
	return killed
}

// others does what kubelets and the hub manager do meanwhile.
func (w *world) others(t *testing.T) {
	t.Helper()
	w.runPods(t, testCell)
	if err := w.objects.Get(t.Context(), client.ObjectKey{Name: testCell}, &cellplanev1alpha1.Cell{}); err == nil {
		w.serve(t, testCell)
	}
	if states := w.states(t); strings.Contains(states, ":In") || strings.Contains(states, ":Out") {
		w.endChange(t)
	} else if topology := w.topology(t); topology.Status.ObservedGeneration != topology.Generation {
		w.reachPhase(t, cellplanev1alpha1.TopologyStable)
	}
	w.advance(2 * time.Second)
}

// testProcess runs the program with the rights that the chart gives it.
func (w *world) testProcess(t *testing.T) {
	config := &Config{Cluster: rest.CopyConfig(w.config), Release: w.release, linger: time.Millisecond, wrap: w.redirect(t, nil)}
	config.Cluster.Impersonate.UserName = "system:serviceaccount:" + testNamespace + ":cp-cluster-api"
	manifests, err := install.Render(w.release)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range manifests.Objects {
		if kind := object.GetKind(); object.GetName() == "cp-cluster-api" && (kind == "ServiceAccount" || kind == "Role" || kind == "RoleBinding") {
			w.create(t, object)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- config.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	cluster := w.cluster(t, testCell, nil)
	plane := w.controlPlane(t, cluster, nil)
	until := func(what string, condition func() bool) {
		t.Helper()
		testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
			err := w.objects.Get(ctx, client.ObjectKeyFromObject(plane), plane)
			return err == nil && condition(), err
		})
	}
	is := func(kind, reason string) func() bool {
		return func() bool {
			condition := meta.FindStatusCondition(plane.Status.Conditions, kind)
			return condition != nil && condition.Reason == reason
		}
	}
	until("the objects are applied and the API servers answer", is(v1alpha1.ConditionInTopology, "NotWanted"))
	w.runPods(t, testCell)
	until("pods are counted", func() bool { return ptr.Deref(plane.Status.ReadyReplicas, 0) == 2 })
	cluster.SetLabels(map[string]string{names.TopologyLabel: "true"})
	if err := w.objects.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	until("it wants to join", is(v1alpha1.ConditionInTopology, "CellNotReady"))
	w.serve(t, testCell)
	until("it joins", is(v1alpha1.ConditionInTopology, "Joining"))
	w.endChange(t)
	until("it has joined", is(v1alpha1.ConditionInTopology, "Joined"))
	if err := w.objects.Delete(t.Context(), plane); err != nil {
		t.Fatal(err)
	}
	until("it is drained", is(v1alpha1.ConditionDeleting, reasonDraining))
	w.endChange(t)
	w.reachPhase(t, cellplanev1alpha1.TopologyStable)
	testenv.Eventually(t, "it is gone", func(ctx context.Context) (bool, error) {
		err := w.objects.Get(ctx, client.ObjectKeyFromObject(plane), plane)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	w.gone(t, testCell)
}
