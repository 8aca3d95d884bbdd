package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// script is a source of topologies that a test writes.
type script chan topology.Topology

// Run implements topology.Source.
func (s script) Run(ctx context.Context, deliver func(topology.Topology)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-s:
			deliver(t)
		}
	}
}

// yard is a federation of two cells between which a test moves objects by hand.
type yard struct {
	*local.Federation
	t         *testing.T
	namespace string
	cells     []topology.Cell
	stores    []*cellstore.Store
	fences    []*fence.Cell
	direct    []kubernetes.Interface
	scripts   []script
	clients   []kubernetes.Interface
	gateways  []*gatewaytest.Gateway
	moving    *slots.Map
}

// TestMoving moves objects step by step while clients use them.
func TestMoving(t *testing.T) {
	y := newYard(t)
	watcher := y.watch()
	y.testStages()
	y.testCreates()
	y.testWrites()
	y.testLateWrite()
	y.testStaleGateway()
	y.testDeleteCollection()
	watcher.expect(y.list(0))
	y.finish()
	watcher.expect(y.list(0))
	watcher.check()
}

func newYard(t *testing.T) *yard {
	y := &yard{t: t, Federation: testenv.StartFederation(t, local.Spec{Cells: 2})}
	y.namespace = gatewaytest.Namespace(t, y.Federation, "moving")
	y.cells = gatewaytest.Topology(t, y.Federation).Cells
	for i, plane := range y.Cells {
		config, err := plane.AdminConfig()
		must(t, err)
		config.QPS = -1
		y.direct = append(y.direct, clientFor(t, config))
		must(t, fence.Install(t.Context(), y.direct[i]))
		y.stores = append(y.stores, openStore(t, plane))
		connected, err := fence.Connect(&cellplanev1alpha1.Cell{
			ObjectMeta: metav1.ObjectMeta{Name: plane.Name()},
			Spec:       cellplanev1alpha1.CellSpec{Endpoint: cellplanev1alpha1.CellEndpoint{Server: plane.URL(), CABundle: y.cells[i].Endpoint.CA}},
		}, &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: y.cells[i].Endpoint.Cert, corev1.TLSPrivateKeyKey: y.cells[i].Endpoint.Key}})
		must(t, err)
		y.fences = append(y.fences, connected)
	}
	for range 2 {
		source := make(script, 4)
		source <- topology.Topology{Epoch: 1, Ready: true, Cells: y.cells[:1]}
		y.scripts = append(y.scripts, source)
		running := gatewaytest.Start(t, y.Federation, func(o *gateway.Options) { o.Source = source })
		y.gateways, y.clients = append(y.gateways, running), append(y.clients, running.Client(t))
	}
	var err error
	y.moving, err = slots.Compile(2, []slots.Cell{{Name: "cell-a", Weight: 1}, {Name: "cell-b", Weight: 1, State: slots.In}})
	must(t, err)
	return y
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, plane *controlplane.ControlPlane) *cellstore.Store {
	t.Helper()
	caFile, pair, err := plane.EtcdFiles()
	must(t, err)
	data := map[string][]byte{}
	for key, file := range map[string]string{"ca.crt": caFile, "tls.crt": pair.CertFile, "tls.key": pair.KeyFile} {
		data[key], err = os.ReadFile(file)
		must(t, err)
	}
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: plane.Name()}, Spec: cellplanev1alpha1.CellSpec{Etcd: cellplanev1alpha1.CellEtcd{Endpoints: []string{plane.EtcdURL()}}}}
	store, err := cellstore.Open(cell, &corev1.Secret{Data: data})
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	must(t, store.RaiseTerm(t.Context(), 1))
	return store
}

// name returns a name that begins with a prefix and moves from cell-a to cell-b, or stays.
func (y *yard) name(prefix string, moves bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if y.moving.Route(slots.Of(y.namespace, name)).Moving() == moves {
			return name
		}
	}
}

func movable(name, value string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"value": value}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}},
		}},
	}
}

// create makes a Deployment through a gateway.
func (y *yard) create(gateway int, name string) *appsv1.Deployment {
	y.t.Helper()
	created, err := y.clients[gateway].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
	must(y.t, err)
	return created
}

func (y *yard) get(gateway int, name string) *appsv1.Deployment {
	y.t.Helper()
	got, err := y.clients[gateway].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	must(y.t, err)
	return got
}

// list returns the UIDs of all Deployments by name; that none comes twice is a matter of the list.
func (y *yard) list(gateway int) map[string]string {
	y.t.Helper()
	list, err := y.clients[gateway].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{})
	must(y.t, err)
	found := map[string]string{}
	for _, item := range list.Items {
		if _, twice := found[item.Name]; twice {
			y.t.Errorf("%s is listed twice", item.Name)
		}
		found[item.Name] = string(item.UID) + " " + item.Annotations["value"]
	}
	return found
}

// journey is an object on its way, and its test the mover.
type journey struct {
	y        *yard
	key      string
	from, to int
}

func (y *yard) journey(name string) *journey {
	return &journey{y: y, key: "deployments/" + y.namespace + "/" + name, to: 1}
}

func (j *journey) read(cell int) cellstore.KV {
	j.y.t.Helper()
	kv, _, err := j.y.stores[cell].Get(j.y.t.Context(), j.y.stores[cell].Key(j.key))
	must(j.y.t, err)
	return kv
}

func (j *journey) put(cell int, value []byte, mark cellstore.Mark) {
	j.y.t.Helper()
	marked, err := cellstore.WithMark(value, mark)
	must(j.y.t, err)
	store := j.y.stores[cell]
	_, err = store.Txn(j.y.t.Context(), 1, []clientv3.Cmp{cellstore.Unchanged(store.Key(j.key), j.read(cell).ModRevision)}, cellstore.Put(store.Key(j.key), marked))
	must(j.y.t, err)
}

func status(value string) map[string]string {
	return map[string]string{names.RebalanceStatusLabel: value}
}

func (j *journey) freeze() {
	j.y.t.Helper()
	j.put(j.from, j.read(j.from).Value, cellstore.Mark{Labels: status(names.RebalanceMigrating)})
}

func (j *journey) copy() {
	j.y.t.Helper()
	j.put(j.to, j.read(j.from).Value, cellstore.Mark{})
}

func (j *journey) commit() {
	j.y.t.Helper()
	at := fmt.Sprintf("%s/%d", j.y.stores[j.to].Cell, j.read(j.to).ModRevision)
	j.put(j.from, j.read(j.from).Value, cellstore.Mark{Labels: status(names.RebalanceMigrated), Annotations: map[string]string{names.CopiedAtAnnotation: at}})
}

func (j *journey) activate() {
	j.y.t.Helper()
	from := fmt.Sprintf("%s/%d", j.y.stores[j.from].Cell, j.read(j.from).ModRevision)
	j.put(j.to, j.read(j.to).Value, cellstore.Mark{Labels: status(""), Annotations: map[string]string{names.MovedFromAnnotation: from, names.CopiedAtAnnotation: ""}})
}

// raise makes the cells refuse earlier epochs.
func (y *yard) raise(epoch int64, cells ...int) {
	y.t.Helper()
	for _, i := range cells {
		must(y.t, y.fences[i].Raise(y.t.Context(), epoch))
	}
}

// deliver tells a gateway of a topology and waits until it routes by it.
func (y *yard) deliver(gateway int, t topology.Topology) {
	y.t.Helper()
	y.scripts[gateway] <- t
}

// joining is the topology in which cell-b joins.
func (y *yard) joining(from uint64) topology.Topology {
	cells := append([]topology.Cell(nil), y.cells...)
	cells[1].State = cellplanev1alpha1.CellStateIn
	return topology.Topology{Epoch: 2, Ready: true, Cells: cells, From: map[string]uint64{"cell-b": from}}
}

// revision is how far a cell's store is.
func (y *yard) revision(cell int) uint64 {
	y.t.Helper()
	revision, err := y.stores[cell].Revision(y.t.Context())
	must(y.t, err)
	return uint64(revision)
}

// testStages looks at an object in every stage of its move, also before the change begins.
func (y *yard) testStages() {
	name, stays := y.name("stages", true), y.name("stays", false)
	created := y.create(0, name)
	y.create(0, stays)
	waiting := y.name("waiting", true)
	y.create(0, waiting)
	from := y.revision(1)
	ahead := y.joining(from)
	ahead.Ready = false
	y.deliver(0, ahead)
	y.create(0, y.name("while-fencing", true)) // nobody waits before the fence is up
	y.raise(2, 0, 1)
	held := make(chan error, 1)
	go func() {
		_, err := y.clients[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(y.name("held", true), "0"), metav1.CreateOptions{})
		held <- err
	}()
	// Whatever exists can be changed before the change is in force.
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"1"}}}`), metav1.PatchOptions{})
	must(y.t, err)
	y.deliver(0, y.joining(from))
	must(y.t, <-held)
	if y.inCell(0, y.name("held", true)) || !y.inCell(1, y.name("held", true)) {
		y.t.Error("what was created when the change was in force is in the old cell")
	}
	j := y.journey(name)
	for _, stage := range []struct {
		name string
		do   func()
	}{{"before", func() {}}, {"frozen", j.freeze}, {"copied", j.copy}, {"committed", j.commit}, {"active", j.activate}} {
		stage.do()
		got := y.get(0, name)
		if got.UID != created.UID || got.Annotations["value"] != "1" {
			y.t.Errorf("%s: got %s with %v", stage.name, got.UID, got.Annotations)
		}
		listed := y.list(0)
		if listed[name] != string(created.UID)+" 1" || listed[stays] == "" || listed[waiting] == "" {
			y.t.Errorf("%s: listed %v", stage.name, listed)
		}
		response := send(y.t, y.gateways[0].Config(y.t), http.MethodGet, "/apis/apps/v1/namespaces/"+y.namespace+"/deployments/"+name+"/scale", nil, "")
		if response.StatusCode != http.StatusOK {
			y.t.Errorf("%s: the scale: %s", stage.name, response.Status)
		}
		table := readOK(y.t, send(y.t, y.gateways[0].Config(y.t), http.MethodGet, "/apis/apps/v1/namespaces/"+y.namespace+"/deployments?limit=2",
			http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}}, ""))
		if !strings.Contains(string(table), "continue") {
			y.t.Errorf("%s: a page has no next: %s", stage.name, table)
		}
		if _, err := y.clients[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "x"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			y.t.Errorf("%s: creating it again: %v", stage.name, err)
		}
	}
}

// inCell reports whether a cell has an object that has not moved away.
func (y *yard) inCell(cell int, name string) bool {
	y.t.Helper()
	got, err := y.direct[cell].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	must(y.t, err)
	return got.Labels[names.RebalanceStatusLabel] != names.RebalanceMigrated
}

// testCreates makes objects of absent names, each in the cell that will own it.
func (y *yard) testCreates() {
	applied := y.name("applied", true)
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), applied, types.ApplyPatchType,
		[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+applied+`"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}}`),
		metav1.PatchOptions{FieldManager: "test"})
	must(y.t, err)
	posted, stays := y.name("posted", true), y.name("posted", false)
	y.create(0, posted)
	y.create(0, stays)
	for name, cell := range map[string]int{applied: 1, posted: 1, stays: 0} {
		if !y.inCell(cell, name) || y.inCell(1-cell, name) {
			y.t.Errorf("%s is not in cell number %d alone", name, cell)
		}
	}
	deployments := y.clients[0].AppsV1().Deployments(y.namespace)
	if _, err := deployments.Get(y.t.Context(), y.name("absent", true), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("reading what is nowhere: %v", err)
	}
	if err := deployments.Delete(y.t.Context(), y.name("absent", true), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("deleting what is nowhere: %v", err)
	}
	if _, err := deployments.Patch(y.t.Context(), y.name("absent", true), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		y.t.Errorf("patching what is nowhere: %v", err)
	}
}

// testWrites changes objects in every way, before they move, while they are frozen and after.
func (y *yard) testWrites() {
	deployments := y.clients[0].AppsV1().Deployments(y.namespace)
	ctx := y.t.Context()
	patch := func(kind types.PatchType, body string) func(string) error {
		return func(name string) error {
			_, err := deployments.Patch(ctx, name, kind, []byte(strings.ReplaceAll(body, "NAME", name)), metav1.PatchOptions{FieldManager: managerFor(kind)})
			return err
		}
	}
	for kind, write := range map[string]func(name string) error{
		"update": func(name string) error {
			_, err := deployments.Update(ctx, movable(name, "written"), metav1.UpdateOptions{})
			return err
		},
		"json":      patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/annotations/value","value":"written"}]`),
		"merge":     patch(types.MergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`),
		"strategic": patch(types.StrategicMergePatchType, `{"metadata":{"annotations":{"value":"written"}}}`),
		"apply":     patch(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","annotations":{"applied":"written"}}}`),
		"delete":    func(name string) error { return deployments.Delete(ctx, name, metav1.DeleteOptions{}) },
		"scale": func(name string) error {
			_, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
			return err
		},
		"status": func(name string) error {
			_, err := deployments.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"replicas":3}}`), metav1.PatchOptions{}, "status")
			return err
		},
	} {
		y.testWrite(kind, write)
	}
}

func managerFor(kind types.PatchType) string {
	if kind == types.ApplyPatchType {
		return "test"
	}
	return ""
}

func (y *yard) testWrite(kind string, write func(name string) error) {
	before, during, after := y.name(kind+"-before", true), y.name(kind+"-during", true), y.name(kind+"-after", true)
	var journeys []*journey
	for _, name := range []string{before, during, after} {
		// They are where they were before the change.
		_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
		must(y.t, err)
		journeys = append(journeys, y.journey(name))
	}
	must(y.t, write(before))
	if y.read(1, before) != nil {
		y.t.Errorf("%s: an object that has not moved was written to in the new cell", kind)
	}
	journeys[1].freeze()
	left := y.read(0, during).ResourceVersion
	done := make(chan error, 1)
	go func() { done <- write(during) }()
	y.waitHeld()
	journeys[1].copy()
	journeys[1].commit()
	select {
	case err := <-done:
		y.t.Errorf("%s: a write to an object that is not active anywhere was answered: %v", kind, err)
		return
	default:
	}
	committed := y.read(0, during).ResourceVersion
	if committed == left {
		y.t.Errorf("%s: the object has not been committed", kind)
	}
	journeys[1].activate()
	if err := <-done; err != nil {
		y.t.Errorf("%s: a held write: %v", kind, err)
	}
	if y.read(0, during).ResourceVersion != committed {
		y.t.Errorf("%s: what was left behind has been written to", kind)
	}
	journeys[2].freeze()
	journeys[2].copy()
	journeys[2].commit()
	journeys[2].activate()
	must(y.t, write(after))
	for _, name := range []string{during, after} {
		got := y.read(1, name)
		switch {
		case kind == "delete":
			if got != nil && got.DeletionTimestamp == nil {
				y.t.Errorf("delete: %s is still there", name)
			}
		case got == nil || got.Annotations["value"] != "written" && got.Annotations["applied"] != "written" && *got.Spec.Replicas != 3 && got.Status.Replicas != 3:
			y.t.Errorf("%s: %s was not written: %+v", kind, name, got)
		}
	}
}

// read returns what a cell has of an object, nil if nothing.
func (y *yard) read(cell int, name string) *appsv1.Deployment {
	y.t.Helper()
	got, err := y.direct[cell].AppsV1().Deployments(y.namespace).Get(y.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(y.t, err)
	return got
}

// waitHeld waits until a gateway holds a request.
func (y *yard) waitHeld() {
	y.t.Helper()
	testenv.Eventually(y.t, "a request is held", func(ctx context.Context) (bool, error) {
		metrics, err := y.clients[0].Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(metrics)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "cellplane_gateway_held_requests "); ok {
				return value != "0", nil
			}
		}
		return false, errors.New("there is no such metric")
	})
}

// testLateWrite freezes an object while a write is on its way to it.
func (y *yard) testLateWrite() {
	name := y.name("late", true)
	_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), movable(name, "0"), metav1.CreateOptions{})
	must(y.t, err)
	y.get(0, name)
	server, err := y.Cells[0].Process(kubebin.KubeAPIServer)
	must(y.t, err)
	must(y.t, server.Pause())
	done := make(chan error, 1)
	go func() {
		_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"late"}}}`), metav1.PatchOptions{})
		done <- err
	}()
	j := y.journey(name)
	j.freeze()
	must(y.t, server.Resume())
	j.copy()
	j.commit()
	j.activate()
	must(y.t, <-done)
	if got := y.get(0, name); got.Annotations["value"] != "late" {
		y.t.Errorf("a write that was on its way is lost: %v", got.Annotations)
	}
}

// testStaleGateway uses a gateway that has not heard of the change. Nothing it answers may be out of date.
func (y *yard) testStaleGateway() {
	moved, created, staying := y.name("stages", true), y.name("posted", true), y.name("stays", false)
	deployments := y.clients[1].AppsV1().Deployments(y.namespace)
	ctx := y.t.Context()
	requests := map[string]func() error{
		"read what moved": func() error {
			got, err := deployments.Get(ctx, moved, metav1.GetOptions{})
			if err == nil && got.Labels[names.RebalanceStatusLabel] != "" {
				return fmt.Errorf("got what was left behind")
			}
			return err
		},
		"read what was created elsewhere": func() error { _, err := deployments.Get(ctx, created, metav1.GetOptions{}); return err },
		"list": func() error {
			list, err := deployments.List(ctx, metav1.ListOptions{})
			for _, item := range list.Items {
				if item.Name == created {
					return err
				}
			}
			return errors.Join(err, errors.New("something is missing"))
		},
		"write": func() error {
			_, err := deployments.Patch(ctx, moved, types.MergePatchType, []byte(`{"metadata":{"annotations":{"stale":"no"}}}`), metav1.PatchOptions{})
			return err
		},
		"write what stays": func() error {
			_, err := deployments.Patch(ctx, staying, types.MergePatchType, []byte(`{"metadata":{"annotations":{"stale":"no"}}}`), metav1.PatchOptions{})
			return err
		},
		"create again": func() error {
			_, err := deployments.Create(ctx, movable(created, "0"), metav1.CreateOptions{})
			if !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		},
		"create": func() error {
			_, err := deployments.Create(ctx, movable(y.name("stale", true), "0"), metav1.CreateOptions{})
			return err
		},
	}
	var open atomic.Int32
	var group sync.WaitGroup
	for what, request := range requests {
		open.Add(1)
		group.Go(func() {
			defer open.Add(-1)
			if err := request(); err != nil {
				y.t.Errorf("%s through a gateway that was behind: %v", what, err)
			}
		})
	}
	y.waitHeld()
	if n := open.Load(); int(n) != len(requests) {
		y.t.Errorf("%d requests were answered by a map that was not in force", len(requests)-int(n))
	}
	y.deliver(1, y.joining(y.revision(1)))
	group.Wait()
	if y.inCell(0, y.name("stale", true)) {
		y.t.Error("something was created in the old cell")
	}
}

// testDeleteCollection deletes objects in all stages of their moves.
func (y *yard) testDeleteCollection() {
	var journeys []*journey
	for i := range 5 {
		name := y.name(fmt.Sprintf("collected-%d", i), true)
		made := movable(name, "0")
		made.Labels = map[string]string{"collected": "yes"}
		_, err := y.direct[0].AppsV1().Deployments(y.namespace).Create(y.t.Context(), made, metav1.CreateOptions{})
		must(y.t, err)
		journeys = append(journeys, y.journey(name))
	}
	steps := func(j *journey) []func() { return []func(){j.freeze, j.copy, j.commit, j.activate} }
	for i, j := range journeys {
		for _, step := range steps(j)[:i] {
			step()
		}
	}
	done := make(chan error, 1)
	go func() {
		done <- y.clients[0].AppsV1().Deployments(y.namespace).DeleteCollection(y.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected=yes"})
	}()
	y.waitHeld()
	for i, j := range journeys[1:4] {
		for _, step := range steps(j)[i+1:] {
			step()
		}
	}
	must(y.t, <-done)
	left, err := y.clients[0].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{LabelSelector: "collected=yes"})
	must(y.t, err)
	if len(left.Items) != 0 {
		y.t.Errorf("%d objects were not deleted", len(left.Items))
	}
}

// finish ends the change, and then empties cell-a.
func (y *yard) finish() {
	y.moveAll(func(slot slots.Slot) bool { return y.moving.Route(slot).Moving() })
	normal := topology.Topology{Epoch: 3, Ready: true, Cells: y.cells}
	y.deliver(0, normal)
	testenv.Eventually(y.t, "everything is there in the next epoch", func(context.Context) (bool, error) {
		return y.get(0, y.name("stages", true)).Annotations["value"] == "1", nil
	})
	leaving := topology.Topology{Epoch: 4, Ready: true, Cells: append([]topology.Cell(nil), y.cells...)}
	leaving.Cells[0].State = cellplanev1alpha1.CellStateOut
	y.raise(4, 0, 1)
	y.deliver(0, leaving)
	made := y.name("made-while-leaving", false)
	y.create(0, made)
	if !y.inCell(1, made) {
		y.t.Error("something was created in a cell that leaves")
	}
	y.moveAll(func(slots.Slot) bool { return true })
	y.deliver(0, topology.Topology{Epoch: 5, Ready: true, Cells: y.cells[1:], Left: []topology.LeftCell{{Name: "cell-a", Least: y.revision(0), Endpoint: y.cells[0].Endpoint}}})
	_, err := y.clients[0].AppsV1().Deployments(y.namespace).Patch(y.t.Context(), made, types.MergePatchType, []byte(`{"metadata":{"annotations":{"value":"5"}}}`), metav1.PatchOptions{})
	must(y.t, err)
}

// moveAll moves what is left in cell-a.
func (y *yard) moveAll(moves func(slots.Slot) bool) {
	y.t.Helper()
	list, err := y.direct[0].AppsV1().Deployments(y.namespace).List(y.t.Context(), metav1.ListOptions{LabelSelector: "!" + names.RebalanceStatusLabel})
	must(y.t, err)
	for _, item := range list.Items {
		if !moves(slots.Of(y.namespace, item.Name)) {
			continue
		}
		j := y.journey(item.Name)
		j.freeze()
		j.copy()
		j.commit()
		j.activate()
	}
}

// watcher is an informer that must not notice anything.
type watcher struct {
	t     *testing.T
	store cache.Store

	lock    sync.Mutex
	lists   int
	deleted map[string]bool
	wrong   []string
}

// RoundTrip counts how often the informer begins anew.
type counting struct {
	http.RoundTripper
	w *watcher
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Get("watch") == "" || query.Get("sendInitialEvents") == "true" {
		c.w.lock.Lock()
		c.w.lists++
		c.w.lock.Unlock()
	}
	return c.RoundTripper.RoundTrip(r)
}

func (y *yard) watch() *watcher {
	w := &watcher{t: y.t, deleted: map[string]bool{}}
	config := y.gateways[0].Config(y.t)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, w} })
	factory := informers.NewSharedInformerFactoryWithOptions(clientFor(y.t, config), 0, informers.WithNamespace(y.namespace))
	informer := factory.Apps().V1().Deployments().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { w.update(before.(*appsv1.Deployment), after.(*appsv1.Deployment)) },
		DeleteFunc: func(object any) {
			name, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			w.lock.Lock()
			defer w.lock.Unlock()
			w.deleted[name] = true
			if !strings.Contains(name, "delete-") && !strings.Contains(name, "collected-") {
				w.wrong = append(w.wrong, name+" appears deleted")
			}
		},
	})
	must(y.t, err)
	w.store = informer.GetStore()
	factory.StartWithContext(y.t.Context())
	y.t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(y.t.Context().Done(), informer.HasSynced) {
		y.t.Fatal("the informer does not sync")
	}
	return w
}

func (w *watcher) update(before, after *appsv1.Deployment) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if before.UID != after.UID {
		w.wrong = append(w.wrong, after.Name+" has another UID")
	}
	was, _ := strconv.Atoi(before.Annotations["value"])
	if is, err := strconv.Atoi(after.Annotations["value"]); err == nil && is < was || before.Generation > after.Generation {
		w.wrong = append(w.wrong, after.Name+" stepped back")
	}
}

// expect waits until the informer knows what a list shows.
func (w *watcher) expect(want map[string]string) {
	w.t.Helper()
	testenv.Eventually(w.t, "the informer is up to date", func(context.Context) (bool, error) {
		got := map[string]string{}
		for _, object := range w.store.List() {
			d := object.(*appsv1.Deployment)
			got[d.Name] = string(d.UID) + " " + d.Annotations["value"]
		}
		for name, value := range want {
			if got[name] != value {
				return false, fmt.Errorf("%s is %q, want %q", name, got[name], value)
			}
		}
		return len(got) == len(want), fmt.Errorf("it has %d, want %d", len(got), len(want))
	})
}

func (w *watcher) check() {
	w.t.Helper()
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, problem := range w.wrong {
		w.t.Error(problem)
	}
	if w.lists != 1 {
		w.t.Errorf("the informer began anew %d times", w.lists-1)
	}
}
