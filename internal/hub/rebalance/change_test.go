package rebalance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/election"
	"github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

const shop = "shop"

// hubEnv is a federation of a hub, three cells and a member, with the hub manager and the cells' engines in this
// process.
type hubEnv struct {
	federation *local.Federation
	hub        client.WithWatch
	cells      map[string]client.WithWatch
	member     client.WithWatch
}

func clientFor(t *testing.T, plane *controlplane.ControlPlane) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	made, err := client.NewWithWatch(configFor(t, plane), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func configFor(t *testing.T, plane *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func newHubEnv(t *testing.T) *hubEnv {
	t.Helper()
	s := &hubEnv{federation: testenv.StartFederation(t, local.Spec{Cells: 3, Members: 1, Nodes: 2}), cells: map[string]client.WithWatch{}}
	s.hub, s.member = clientFor(t, s.federation.Hub), clientFor(t, s.federation.Members[0])
	for _, name := range []string{names.SystemNamespace, names.ClusterNamespace, shop} {
		s.create(t, s.hub, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, plane := range s.federation.Cells {
		s.cells[plane.Name()] = clientFor(t, plane)
		s.register(t, plane)
	}
	topology := &cellplanev1alpha1.CellTopology{ObjectMeta: metav1.ObjectMeta{Name: cellplanev1alpha1.CellTopologyName}}
	for _, name := range []string{"cell-a", "cell-b"} {
		topology.Spec.Cells = append(topology.Spec.Cells, cellplanev1alpha1.TopologyCell{Name: name, Weight: 1, State: cellplanev1alpha1.CellStateNormal})
	}
	topology.Spec.Migration.GracePeriod = &metav1.Duration{Duration: time.Hour}
	s.create(t, s.hub, topology)
	s.run(t, func(ctx context.Context) error {
		for {
			config := &manager.Config{Hub: configFor(t, s.federation.Hub), Identity: "test", CopyWorkers: 8, Election: manager.NewOptions().Election}
			if err := config.Run(ctx); !errors.Is(err, election.ErrLost) {
				return err // a replica that lost its lease is restarted
			}
		}
	})
	if _, err := membership.Join(t.Context(), membership.Options{
		Hub: configFor(t, s.federation.Hub), Member: configFor(t, s.federation.Members[0]), Name: "member1", Cells: []string{"cell-a", "cell-b"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, plane := range s.federation.Cells {
		s.run(t, func(ctx context.Context) error {
			config := engine.Config{Cell: plane.Name(), Config: configFor(t, plane)}
			return config.Run(ctx)
		})
	}
	return s
}

// run runs a component until the end of the test.
func (s *hubEnv) run(t *testing.T, component func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		err := component(ctx)
		if ctx.Err() == nil {
			t.Errorf("a component has ended: %v", err)
		}
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (s *hubEnv) create(t *testing.T, in client.Client, object client.Object) {
	t.Helper()
	if err := in.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// register creates the Cell and its Secrets on the hub.
func (s *hubEnv) register(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	read := func(file string) []byte {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	proxy, err := plane.FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	etcdCA, etcdPair, err := plane.EtcdFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{
		plane.Name():           {"tls.crt": read(proxy.CertFile), "tls.key": read(proxy.KeyFile)},
		plane.Name() + "-etcd": {"tls.crt": read(etcdPair.CertFile), "tls.key": read(etcdPair.KeyFile), "ca.crt": read(etcdCA)},
	} {
		s.create(t, s.hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data})
	}
	cell := &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: plane.Name()}}
	cell.Spec.Endpoint = cellplanev1alpha1.CellEndpoint{Server: plane.URL(), CABundle: read(plane.CAFile())}
	cell.Spec.Credentials.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: plane.Name()}
	cell.Spec.Etcd.Endpoints = []string{plane.EtcdURL()}
	cell.Spec.Etcd.SecretRef = cellplanev1alpha1.SecretReference{Namespace: names.SystemNamespace, Name: plane.Name() + "-etcd"}
	s.create(t, s.hub, cell)
}

// edit edits the topology and waits for the end of the change.
func (s *hubEnv) edit(t *testing.T, edit cells.Edit) *cellplanev1alpha1.CellTopology {
	t.Helper()
	s.change(t, edit)
	return s.awaitStable(t)
}

func (s *hubEnv) change(t *testing.T, edit cells.Edit) {
	t.Helper()
	testenv.Eventually(t, "the topology is edited", func(ctx context.Context) (bool, error) {
		topology := s.topology(ctx, t)
		if err := edit(&topology.Spec); err != nil {
			t.Fatal(err)
		}
		err := s.hub.Update(ctx, topology)
		return err == nil, err
	})
}

func (s *hubEnv) topology(ctx context.Context, t *testing.T) *cellplanev1alpha1.CellTopology {
	t.Helper()
	topology := &cellplanev1alpha1.CellTopology{}
	if err := s.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, topology); err != nil {
		t.Fatal(err)
	}
	return topology
}

func (s *hubEnv) awaitStable(t *testing.T) *cellplanev1alpha1.CellTopology {
	t.Helper()
	var topology *cellplanev1alpha1.CellTopology
	testenv.Eventually(t, "no change is under way", func(ctx context.Context) (bool, error) {
		now := &cellplanev1alpha1.CellTopology{}
		if err := s.hub.Get(ctx, types.NamespacedName{Name: cellplanev1alpha1.CellTopologyName}, now); err != nil {
			return false, err
		}
		topology = now
		return topology.Status.ObservedGeneration == topology.Generation && topology.Status.Phase == cellplanev1alpha1.TopologyStable &&
			topology.Status.FencedEpoch == topology.Generation && cells.Running(&topology.Spec) == "", fmt.Errorf("the status is %+v", topology.Status)
	})
	return topology
}

// owners compiles the current topology.
func (s *hubEnv) owners(t *testing.T) *slots.Map {
	t.Helper()
	topology := s.topology(t.Context(), t)
	compiled, err := cells.Compile(topology.Generation, &topology.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func workload(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(1)),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

// snapshot is what identifies the objects of workloads.
type snapshot map[string]string

// inCell returns the snapshot of a workload in a cell.
func (s *hubEnv) inCell(ctx context.Context, t *testing.T, cell, name string) (snapshot, error) {
	t.Helper()
	var template appsv1.Deployment
	if err := s.cells[cell].Get(ctx, types.NamespacedName{Namespace: shop, Name: name}, &template); err != nil {
		return nil, err
	}
	var binding workv1alpha2.ResourceBinding
	if err := s.cells[cell].Get(ctx, types.NamespacedName{Namespace: shop, Name: name + "-deployment"}, &binding); err != nil {
		return nil, err
	}
	return snapshot{
		"template": fmt.Sprint(template.UID, template.CreationTimestamp, template.Generation, len(template.ManagedFields)),
		"binding":  fmt.Sprint(binding.UID, binding.CreationTimestamp, binding.Generation, binding.Spec.Clusters),
	}, nil
}

// inMember returns the snapshot of all workloads and pods in the member.
func (s *hubEnv) inMember(ctx context.Context, t *testing.T) snapshot {
	t.Helper()
	p := snapshot{}
	var deployments appsv1.DeploymentList
	if err := s.member.List(ctx, &deployments, client.InNamespace(shop)); err != nil {
		t.Fatal(err)
	}
	for _, d := range deployments.Items {
		spec, err := json.Marshal(d.Spec)
		if err != nil {
			t.Fatal(err)
		}
		// The generation may grow: it counts changes of annotations of Deployments.
		p["deployment "+d.Name] = fmt.Sprint(d.UID, string(spec))
	}
	var pods corev1.PodList
	if err := s.member.List(ctx, &pods, client.InNamespace(shop)); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		p["pod "+pod.Name] = string(pod.UID)
	}
	return p
}

// checkMember checks that the member has not changed.
func (s *hubEnv) checkMember(t *testing.T, before snapshot) {
	t.Helper()
	if diff := cmp.Diff(before, s.inMember(t.Context(), t)); diff != "" {
		t.Errorf("the member has changed:\n%s", diff)
	}
}

// deletions returns a function that returns what was deleted in the member since.
func (s *hubEnv) deletions(t *testing.T) func() []string {
	t.Helper()
	var mu sync.Mutex
	var gone []string
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}, &corev1.NamespaceList{}} {
		watcher, err := s.member.Watch(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watcher.Stop)
		go func() {
			for event := range watcher.ResultChan() {
				if object, err := meta.Accessor(event.Object); event.Type == watch.Deleted && err == nil {
					mu.Lock()
					gone = append(gone, fmt.Sprintf("%T %s", event.Object, object.GetName()))
					mu.Unlock()
				}
			}
		}()
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(gone)
	}
}

func TestChange(t *testing.T) {
	s := newHubEnv(t)
	s.awaitStable(t)
	s.create(t, s.hub, &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "all"}, Spec: policyv1alpha1.PropagationSpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Placement:         policyv1alpha1.Placement{ClusterAffinity: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"member1"}}},
	}})
	t.Run("a cell that has not joined keeps its objects", func(t *testing.T) { s.testNotJoined(t) })
	owners := s.owners(t)
	home := map[string]string{}
	for i := range 10 {
		name := fmt.Sprintf("web-%d", i)
		home[name] = owners.Name(owners.Route(slots.Of(shop, name)).New)
		testenv.Eventually(t, "the namespace is in the cell", func(ctx context.Context) (bool, error) {
			err := s.cells[home[name]].Create(ctx, workload(name))
			return err == nil, err
		})
	}
	s.awaitPods(t, len(home))
	s.awaitStatus(t, home)
	gone := s.deletions(t)
	t.Run("a cell joins", func(t *testing.T) { s.testJoin(t, home) })
	t.Run("the new engine takes over", func(t *testing.T) { s.testTakeOver(t, home) })
	t.Run("a change is reversed", func(t *testing.T) { s.testReversed(t) })
	t.Run("a cell is drained", func(t *testing.T) { s.testDrain(t, home) })
	t.Run("a drained cell returns", func(t *testing.T) { s.testReturn(t, home) })
	t.Run("stale copies are removed", func(t *testing.T) { s.testCleanUp(t, home) })
	t.Run("a kind is not served", func(t *testing.T) { s.testUnestablished(t) })
	t.Run("encryption is refused", func(t *testing.T) { s.testEncrypted(t) })
	t.Run("a store has an alarm", func(t *testing.T) { s.testAlarm(t) })
	if deleted := gone(); len(deleted) > 0 {
		t.Errorf("deleted in the member: %v", deleted)
	}
}

func (s *hubEnv) awaitPods(t *testing.T, count int) {
	t.Helper()
	testenv.Eventually(t, "all pods run in the member", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := s.member.List(ctx, &pods, client.InNamespace(shop))
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == count, fmt.Errorf("%d run: %w", running, err)
	})
}

// awaitStatus waits until the cells have the final status of their workloads.
func (s *hubEnv) awaitStatus(t *testing.T, home map[string]string) {
	t.Helper()
	for name, cell := range home {
		testenv.Eventually(t, name+" has the status of its pods", func(ctx context.Context) (bool, error) {
			var d appsv1.Deployment
			err := s.cells[cell].Get(ctx, types.NamespacedName{Namespace: shop, Name: name}, &d)
			return d.Status.AvailableReplicas == 1 && d.Status.ObservedGeneration == d.Generation, fmt.Errorf("its status is %+v: %w", d.Status, err)
		})
	}
}

// tenures returns the published owners of a topology, from which gateways make the versions of objects.
func (s *hubEnv) tenures(t *testing.T, epoch int64) *slots.Owners {
	t.Helper()
	var published corev1.Secret
	if err := s.hub.Get(t.Context(), types.NamespacedName{Namespace: names.SystemNamespace, Name: names.SlotOwnersSecret}, &published); err != nil {
		t.Fatal(err)
	}
	owners, err := slots.PublishedOwners(published.Data, epoch)
	if err != nil || owners == nil {
		t.Fatalf("the owners of epoch %d are not published: %v", epoch, err)
	}
	return owners
}

// checkOwners checks that workloads are unchanged in the cells that own them now, updates home, and returns how many
// have moved.
func (s *hubEnv) checkOwners(t *testing.T, home map[string]string, before map[string]snapshot) int {
	t.Helper()
	owners, moved := s.owners(t), 0
	tenures := s.tenures(t, owners.Epoch())
	for slot := range slots.Slot(slots.Count) {
		if tenures.Since(slot, tenures.Number(owners.Name(owners.Route(slot).New))) == 0 {
			t.Fatalf("the published owner of slot %d is another one", slot)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(home)) {
		cell := owners.Name(owners.Route(slots.Of(shop, name)).New)
		if cell != home[name] {
			moved++
		}
		after, err := s.inCell(t.Context(), t, cell, name)
		if err != nil {
			t.Errorf("%s should be in %s: %v", name, cell, err)
		}
		if diff := cmp.Diff(before[name], after); diff != "" {
			t.Errorf("%s has changed:\n%s", name, diff)
		}
		home[name] = cell
	}
	return moved
}

func (s *hubEnv) snapshots(t *testing.T, home map[string]string) map[string]snapshot {
	t.Helper()
	all := map[string]snapshot{}
	for name, cell := range home {
		var err error
		if all[name], err = s.inCell(t.Context(), t, cell, name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (s *hubEnv) testJoin(t *testing.T, home map[string]string) {
	member, before := s.inMember(t.Context(), t), s.snapshots(t, home)
	s.change(t, cells.Add("cell-c", 1))
	s.awaitBlocked(t, "cell cell-c cannot join because it has objects of its own, for example ConfigMap shop/own")
	if err := s.cells["cell-c"].Delete(t.Context(), own()); err != nil {
		t.Fatal(err)
	}
	topology := s.awaitStable(t)
	if moved := s.checkOwners(t, home, before); moved == 0 || moved == len(home) {
		t.Errorf("%d of %d workloads have moved", moved, len(home))
	}
	s.awaitLabels(t, home)
	s.checkMember(t, member)
	epoch := topology.Generation
	carried := topology.Status.Epochs
	if len(carried) < 2 || carried[len(carried)-2].From["cell-c"] == 0 || carried[len(carried)-1].Epoch != epoch || len(carried[len(carried)-1].Least) == 0 {
		t.Errorf("positions are carried by %+v", carried)
	}
	if before := carried[len(carried)-2].Before; before["cell-a"] == 0 || before["cell-b"] == 0 || before["cell-c"] != 0 {
		t.Errorf("before the cell joined, the others were at %v", before)
	}
	var cell cellplanev1alpha1.Cell
	testenv.Eventually(t, "the cell's status is published", func(ctx context.Context) (bool, error) {
		err := s.hub.Get(ctx, types.NamespacedName{Name: "cell-c"}, &cell)
		return err == nil && meta.IsStatusConditionTrue(cell.Status.Conditions, names.CellReady) && cell.Status.Version != "" && cell.Status.Objects != nil, err
	})
}

// awaitLabels waits until each object in the member belongs to the cell of its workload.
func (s *hubEnv) awaitLabels(t *testing.T, home map[string]string) {
	t.Helper()
	for name, cell := range home {
		testenv.Eventually(t, name+" in the member belongs to "+cell, func(ctx context.Context) (bool, error) {
			var d appsv1.Deployment
			err := s.member.Get(ctx, types.NamespacedName{Namespace: shop, Name: name}, &d)
			return d.Labels[names.CellLabel] == cell, fmt.Errorf("its labels are %v: %w", d.Labels, err)
		})
	}
}

func (s *hubEnv) testTakeOver(t *testing.T, home map[string]string) {
	for name, cell := range home {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"priorityClassName":""}},"minReadySeconds":7}}`))
		if err := s.cells[cell].Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	for name := range home {
		testenv.Eventually(t, name+" is up to date in the member", func(ctx context.Context) (bool, error) {
			var d appsv1.Deployment
			err := s.member.Get(ctx, types.NamespacedName{Namespace: shop, Name: name}, &d)
			return d.Spec.MinReadySeconds == 7, err
		})
	}
	s.awaitStatus(t, home)
}

func (s *hubEnv) testDrain(t *testing.T, home map[string]string) {
	before := s.snapshots(t, home)
	member := s.inMember(t.Context(), t)
	late := s.createLate(t, "rival")
	topology := s.edit(t, cells.Drain("cell-a"))
	if slices.ContainsFunc(topology.Spec.Cells, func(c cellplanev1alpha1.TopologyCell) bool { return c.Name == "cell-a" }) {
		t.Error("the drained cell is still in the topology")
	}
	if moved := s.checkOwners(t, home, before); moved == 0 {
		t.Error("nothing has moved")
	}
	s.checkLate(t, late)
	s.awaitLabels(t, home)
	s.checkMember(t, member)
}

func (s *hubEnv) testCleanUp(t *testing.T, home map[string]string) {
	member := s.inMember(t.Context(), t)
	late := s.createLate(t, "late")
	s.change(t, func(spec *cellplanev1alpha1.CellTopologySpec) error {
		spec.Migration.GracePeriod = &metav1.Duration{Duration: time.Millisecond}
		return nil
	})
	testenv.Eventually(t, "the condition Settled is true", func(ctx context.Context) (bool, error) {
		topology := s.topology(ctx, t)
		return topology.Status.ObservedGeneration == topology.Generation && meta.IsStatusConditionTrue(topology.Status.Conditions, names.TopologySettled), nil
	})
	for cell, api := range s.cells {
		var left appsv1.DeploymentList
		if err := api.List(t.Context(), &left, client.HasLabels{names.RebalanceStatusLabel}); err != nil {
			t.Fatal(err)
		}
		if len(left.Items) > 0 {
			t.Errorf("cell %s still holds %d stale copies", cell, len(left.Items))
		}
	}
	for cell, api := range s.cells {
		want := 0
		for _, owner := range late {
			if owner == cell {
				want++
			}
		}
		var left corev1.ConfigMapList
		if err := api.List(t.Context(), &left, client.InNamespace(shop), client.HasLabels{"late"}); err != nil {
			t.Fatal(err)
		}
		if len(left.Items) != want {
			t.Errorf("cell %s holds %d of the objects that were created late, want the %d whose slots it owns", cell, len(left.Items), want)
		}
	}
	s.testTakeOver(t, home) // every engine still works
	s.checkMember(t, member)
}

// createLate stores the same objects in all cells, as creations do that are admitted before their slots leave and stored
// afterwards. It returns the owner of each.
func (s *hubEnv) createLate(t *testing.T, prefix string) map[string]string {
	t.Helper()
	owners, home := s.owners(t), map[string]string{}
	for i := range 6 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		home[name] = owners.Name(owners.Route(slots.Of(shop, name)).New)
		for cell, api := range s.cells {
			if err := api.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: map[string]string{prefix: ""}}, Data: map[string]string{"cell": cell},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return home
}

func (s *hubEnv) testEncrypted(t *testing.T) {
	store := storetest.For(t, s.federation.Cells[1])
	if _, err := store.Client().Put(t.Context(), "/registry/secrets/shop/sealed", "k8s:enc:aescbc:v1:key1:..."); err != nil {
		t.Fatal(err)
	}
	s.change(t, cells.Weight("cell-b", 3))
	testenv.Eventually(t, "the change is blocked", func(ctx context.Context) (bool, error) {
		settled := meta.FindStatusCondition(s.topology(ctx, t).Status.Conditions, names.TopologySettled)
		return settled != nil && settled.Reason == "Blocked", fmt.Errorf("settled is %+v", settled)
	})
	// Further attempts fail in the same way and leave the status as it is.
	began := s.topology(t.Context(), t).Status
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 6*time.Second, true, func(context.Context) (bool, error) {
		if diff := cmp.Diff(began, s.topology(t.Context(), t).Status); diff != "" {
			t.Errorf("the status has changed (-before +after):\n%s", diff)
		}
		return t.Failed(), nil
	})
	if _, err := store.Client().Delete(t.Context(), "/registry/secrets/shop/sealed"); err != nil {
		t.Fatal(err)
	}
	s.awaitStable(t)
}

// testAlarm raises the alarm of a store whose quota is used up. The store refuses writes, and the Cell says so until the alarm is disarmed.
func (s *hubEnv) testAlarm(t *testing.T) {
	plane := s.federation.Cells[1]
	store := storetest.For(t, plane)
	alarm := func(ctx context.Context, action etcdserverpb.AlarmRequest_AlarmAction) (*etcdserverpb.AlarmResponse, error) {
		return etcdserverpb.NewMaintenanceClient(store.Client().ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
	}
	ready := func(status metav1.ConditionStatus, words string) {
		t.Helper()
		testenv.Eventually(t, "the Cell is ready: "+string(status), func(ctx context.Context) (bool, error) {
			var cell cellplanev1alpha1.Cell
			if err := s.hub.Get(ctx, types.NamespacedName{Name: plane.Name()}, &cell); err != nil {
				return false, err
			}
			found := meta.FindStatusCondition(cell.Status.Conditions, names.CellReady)
			return found != nil && found.Status == status && strings.Contains(found.Message, words), fmt.Errorf("ready is %+v", found)
		})
	}
	ready(metav1.ConditionTrue, "")
	t.Cleanup(func() { _, _ = alarm(context.Background(), etcdserverpb.AlarmRequest_DEACTIVATE) })
	if _, err := alarm(t.Context(), etcdserverpb.AlarmRequest_ACTIVATE); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Client().Put(t.Context(), "/elsewhere", "x"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write to the store: %v", err)
	}
	ready(metav1.ConditionFalse, "has reached its quota and refuses writes")
	if _, err := alarm(t.Context(), etcdserverpb.AlarmRequest_DEACTIVATE); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionTrue, "")
}
