package gateway_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/slots"
)

// Indexes of the two cells in a movingFixture.
const (
	oldCell = iota
	newCell
)

// Indexes of the two gateways in a movingFixture.
const (
	currentGateway = iota // gets every topology first
	staleGateway          // gets the topology of cell-b's joining only when a stage delivers it
)

// testMoving moves Deployments between two cells, one step at a time, while clients use them. The stages build on each other:
// cell-b joins, then cell-a leaves. Informers and a watch watch all the time and must notice nothing.
func testMoving(t *testing.T, w *world) {
	f := newMovingFixture(t, w)
	informer, watched := f.startInformer(currentGateway), f.startWatchFromList(currentGateway)
	concurrent := f.startConcurrentWatches(currentGateway)
	ofHub := f.startHubWatch(w)
	ofHub.show("before")

	f.stage("CreateBeforeFence", (*movingFixture).testCreateBeforeFence)
	f.stage("CreateWaitsForTopology", (*movingFixture).testCreateWaitsForTopology)
	f.stage("ReadAtEveryStep", (*movingFixture).testReadAtEveryStep)
	f.stage("CreateInNewCell", (*movingFixture).testCreateInNewCell)
	f.stage("AbsentObject", (*movingFixture).testAbsentObject)
	f.stage("Write", (*movingFixture).testWrites)
	f.stage("WriteInFlight", (*movingFixture).testWriteInFlight)
	f.stage("Evict", (*movingFixture).testEvict)
	f.stage("Bind", (*movingFixture).testBind)
	f.stage("WindowAfterMove", (*movingFixture).testWindowAfterMove)
	f.stage("StaleGateway", (*movingFixture).testStaleGateway)
	f.stage("DeleteCollection", (*movingFixture).testDeleteCollection)
	f.stage("Versions", (*movingFixture).testVersions)
	f.stage("WatchesWhileJoining", concurrent.check)
	f.stage("WatchesFromVersions", (*movingFixture).testWatchesFromVersions)
	informer.waitFor(f.list(currentGateway))
	ofHub.show("joining")

	f.stage("JoinEnds", (*movingFixture).testJoinEnds)
	f.stage("WatchesAfterJoining", concurrent.check)
	stale := f.startInformer(staleGateway)
	f.stage("SlowCreations", (*movingFixture).testSlowCreations)
	f.stage("CreateWhileLeaving", (*movingFixture).testCreateWhileLeaving)
	f.stage("WatchesWhileLeaving", concurrent.check)
	f.stage("EventsOfALaterTopology", (*movingFixture).testEventsOfALaterTopology)
	f.stage("LeaveEnds", (*movingFixture).testLeaveEnds)
	watched.waitFor(f.stayingName(createdWhileLeaving), "value", "5")
	ofHub.show("left")
	for _, i := range []*movingInformer{informer, stale} {
		i.waitFor(f.list(currentGateway))
		i.check()
	}
}

// movingFixture is two cells and two gateways. The test takes the place of the hub manager: it delivers topologies, raises the
// fences and moves the objects.
type movingFixture struct {
	t         *testing.T // of the current stage
	namespace string
	planes    []*controlplane.ControlPlane
	cells     []topology.Cell
	stores    []*cellstore.Store
	fences    []*fence.Cell
	direct    []kubernetes.Interface // of the cells, past the gateways
	sources   []topologyScript       // of the gateways
	gateways  []*gatewaytest.Gateway
	clients   []kubernetes.Interface
	joining   *slots.Map // while cell-b joins
}

// topologyScript is a source of topologies that the test writes.
type topologyScript chan topology.Topology

// Run implements topology.Source.
func (s topologyScript) Run(ctx context.Context, deliver func(topology.Topology)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-s:
			deliver(t)
		}
	}
}

// newMovingFixture starts two gateways that know of cell-a only.
func newMovingFixture(t *testing.T, w *world) *movingFixture {
	t.Helper()
	f := &movingFixture{
		t: t, namespace: gatewaytest.Namespace(t, w.Federation, "moving"),
		planes: w.Cells[:2], cells: gatewaytest.Topology(t, w.Federation).Cells[:2],
	}
	for i, plane := range f.planes {
		f.addCell(plane, f.cells[i].Endpoint)
	}
	for range 2 {
		source := make(topologyScript, 4)
		first, _, err := topology.Topology{Epoch: 1, Ready: true, Cells: f.cells[:1]}.WithOwners(nil)
		must(t, err)
		source <- first // the gateways follow its owners
		running := gatewaytest.Start(t, w.Federation, func(o *gateway.Options) { o.Source = source })
		f.sources, f.gateways, f.clients = append(f.sources, source), append(f.gateways, running), append(f.clients, running.Client(t))
	}
	var err error
	f.joining, err = slots.Compile(2, []slots.Cell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: slots.In}})
	must(t, err)
	return f
}

// addCell connects to a cell's API server, store and fence.
func (f *movingFixture) addCell(plane *controlplane.ControlPlane, endpoint fleet.Endpoint) {
	f.t.Helper()
	config := adminOf(f.t, plane)
	config.QPS = -1
	direct := clientFor(f.t, config)
	store := storetest.For(f.t, plane)
	must(f.t, store.RaiseTerm(f.t.Context(), 1))
	connected, err := fence.Connect(plane.Name(), endpoint)
	must(f.t, err)
	must(f.t, connected.RaiseFloor(f.t.Context(), 0)) // which installs it
	f.direct, f.stores, f.fences = append(f.direct, direct), append(f.stores, store), append(f.fences, connected)
}

// stage runs a subtest with a copy of the fixture. Later stages build on it, so the test stops if it fails.
func (f *movingFixture) stage(name string, run func(*movingFixture)) {
	f.t.Helper()
	if !f.t.Run(name, func(t *testing.T) {
		bound := *f
		bound.t = t
		run(&bound)
	}) {
		f.t.FailNow()
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// movingName returns a name with a prefix whose slot moves from cell-a to cell-b when cell-b joins.
func (f *movingFixture) movingName(prefix string) string { return f.nameWith(prefix, true) }

// stayingName returns a name with a prefix whose slot stays in cell-a when cell-b joins.
func (f *movingFixture) stayingName(prefix string) string { return f.nameWith(prefix, false) }

func (f *movingFixture) nameWith(prefix string, moves bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if f.joining.Route(slots.Of(f.namespace, name)).Moving() == moves {
			return name
		}
	}
}

// newMovable returns a Deployment with a value that informers must not see go back.
func newMovable(name, value string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"value": value}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}},
	}
}

// through returns the Deployments as a gateway shows them, and in returns those that a cell stores.
func (f *movingFixture) through(gateway int) appsclient.DeploymentInterface {
	return f.clients[gateway].AppsV1().Deployments(f.namespace)
}

func (f *movingFixture) in(cell int) appsclient.DeploymentInterface {
	return f.direct[cell].AppsV1().Deployments(f.namespace)
}

// create creates a Deployment through the current gateway.
func (f *movingFixture) create(name string) *appsv1.Deployment {
	f.t.Helper()
	created, err := f.through(currentGateway).Create(f.t.Context(), newMovable(name, "0"), metav1.CreateOptions{})
	must(f.t, err)
	return created
}

// createInOldCell creates a Deployment in cell-a as if it had been there before the change.
func (f *movingFixture) createInOldCell(name string, labels map[string]string) *movingObject {
	f.t.Helper()
	object := newMovable(name, "0")
	object.Labels = labels
	_, err := f.in(oldCell).Create(f.t.Context(), object, metav1.CreateOptions{})
	must(f.t, err)
	return f.object(name)
}

// patchValue sets the value of a Deployment through the current gateway.
func (f *movingFixture) patchValue(name, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"value":%q}}}`, value)
	_, err := f.through(currentGateway).Patch(f.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// list returns UID and value of all Deployments by name. No name may be listed twice.
func (f *movingFixture) list(gateway int) map[string]string {
	f.t.Helper()
	list, err := f.through(gateway).List(f.t.Context(), metav1.ListOptions{})
	must(f.t, err)
	found := map[string]string{}
	for i := range list.Items {
		item := &list.Items[i]
		if _, twice := found[item.Name]; twice {
			f.t.Errorf("%s is listed twice", item.Name)
		}
		found[item.Name] = string(item.UID) + " " + item.Annotations["value"]
	}
	return found
}
