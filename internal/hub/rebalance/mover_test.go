package rebalance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/hub/rebalance/handover"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// cellEnv has cells without a hub.
type cellEnv struct {
	federation *local.Federation

	stores  map[string]*cellstore.Store
	configs map[string]*rest.Config
	readers map[string]*reader
	term    cellstore.Term
}

func newCellEnv(t testing.TB, cells int) *cellEnv {
	t.Helper()
	env := &cellEnv{stores: map[string]*cellstore.Store{}, configs: map[string]*rest.Config{}, readers: map[string]*reader{}}
	env.federation = testenv.StartFederation(t, local.Spec{WithoutHub: true, Cells: cells})
	for _, plane := range env.federation.Cells {
		config, err := plane.AdminConfig()
		if err != nil {
			t.Fatal(err)
		}
		config.QPS = -1
		env.configs[plane.Name()] = config
		env.stores[plane.Name()] = storetest.For(t, plane)
		if env.readers[plane.Name()], err = newReader(plane.Name(), config); err != nil {
			t.Fatal(err)
		}
	}
	return env
}

// mover returns a mover with a higher term than the last.
func (env *cellEnv) mover(t testing.TB, topology *slots.Map) *Mover {
	t.Helper()
	env.term++
	for _, store := range env.stores {
		if err := store.RaiseTerm(t.Context(), env.term); err != nil {
			t.Fatal(err)
		}
	}
	verifier := newVerifier(t.Context())
	return &Mover{
		Topology: topology, Stores: env.stores, Term: env.term, Window: 64,
		Verify: func(ctx context.Context, from, to string, object *cellstore.Object, stored cellstore.KV) error {
			return verifier.verify(ctx, env.readers[from], env.readers[to], object, stored)
		},
	}
}

// joining returns a topology in which the last of the cells joins or, with back, leaves.
func joining(t testing.TB, back bool, cells ...string) *slots.Map {
	t.Helper()
	list := make([]slots.Cell, len(cells))
	for i, name := range cells {
		list[i] = slots.Cell{Name: name, Weight: 1}
	}
	list[len(list)-1].State = slots.In
	if back {
		list[len(list)-1].State = slots.Out
	}
	topology, err := slots.Compile(2, list)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// sample returns names that move and names that stay.
func (env *cellEnv) sample(t *testing.T, topology *slots.Map, namespace string, moving, staying int) (move, stay []string) {
	t.Helper()
	for i := 0; len(move) < moving || len(stay) < staying; i++ {
		name := fmt.Sprintf("app-%d", i)
		if topology.Route(slots.Of(namespace, name)).Moving() {
			move = append(move, name)
		} else {
			stay = append(stay, name)
		}
	}
	return move[:moving], stay[:staying]
}

var (
	bindingsResource = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}
	worksResource    = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha1", Resource: "works"}
)

// populate creates workloads with their bindings and Works in a cell.
func (env *cellEnv) populate(t *testing.T, cell, namespace string, workloads ...string) {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{namespace, "karmada-es-m1"} {
		for _, config := range env.configs {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		}
	}
	client, err := kubernetes.NewForConfig(env.configs[cell])
	if err != nil {
		t.Fatal(err)
	}
	custom, err := dynamic.NewForConfig(env.configs[cell])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range workloads {
		labels := map[string]string{"app": name}
		if _, err := client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.io/keep"}}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &unstructured.Unstructured{}
		if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"work.karmada.io/v1alpha2","kind":"ResourceBinding","metadata":{"name":"%s-deployment"},"spec":{"resource":{"apiVersion":"apps/v1","kind":"Deployment","namespace":"%s","name":"%s"},"clusters":[{"name":"m1","replicas":2}]}}`, name, namespace, name), binding); err != nil {
			t.Fatal(err)
		}
		if _, err := custom.Resource(bindingsResource).Namespace(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		work := &unstructured.Unstructured{}
		if err := json.Unmarshal(fmt.Appendf(nil, `{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{"name":"%s.%s","labels":{"cellplane.io/slot":"%s"}},"spec":{"workload":{"manifests":[]}}}`, name, namespace, slots.Of(namespace, name)), work); err != nil {
			t.Fatal(err)
		}
		if _, err := custom.Resource(worksResource).Namespace("karmada-es-m1").Create(ctx, work, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the federated objects of a cell: their values without the marks of moves, by key, and their status.
func (env *cellEnv) contents(t *testing.T, cell, namespace string) (values map[string]string, statuses map[string]handover.Status) {
	t.Helper()
	values, statuses = map[string]string{}, map[string]handover.Status{}
	for kv, err := range env.stores[cell].Range(t.Context(), env.stores[cell].Prefix(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			t.Fatal(err)
		}
		if class, _ := cellstore.Classify(object); class == cellstore.Local || (object.Namespace != namespace && !strings.HasSuffix(object.Name, "."+namespace)) {
			continue
		}
		plain, err := cellstore.WithMark(kv.Value, cellstore.Mark{Labels: status(""), Annotations: map[string]string{names.CopiedAtAnnotation: "", names.MovedFromAnnotation: ""}})
		if err != nil {
			t.Fatal(err)
		}
		if statuses[kv.Key], err = statusOf(kv); err != nil {
			t.Fatal(err)
		}
		values[kv.Key] = string(plain)
	}
	return values, statuses
}

func isWork(key string) bool { return strings.Contains(key, "/works/") }

// checkMoved checks that the objects are in the new cell, unchanged, and marked as moved in the old one.
func (env *cellEnv) checkMoved(t *testing.T, before map[string]string, from, to, namespace string, moved []string) {
	t.Helper()
	oldValues, oldStatuses := env.contents(t, from, namespace)
	newValues, newStatuses := env.contents(t, to, namespace)
	for key, value := range before {
		moves := slices.ContainsFunc(moved, func(name string) bool {
			return strings.HasSuffix(key, "/"+name) || strings.HasSuffix(key, "/"+name+"-deployment") || strings.HasSuffix(key, "/"+name+"."+namespace)
		})
		switch {
		case !moves:
			if oldStatuses[key] != handover.Active || newStatuses[key] != handover.Absent || oldValues[key] != value {
				t.Errorf("%s should have stayed: %v in %s, %v in %s", key, oldStatuses[key], from, newStatuses[key], to)
			}
		case isWork(key):
			if newStatuses[key] != handover.Absent || oldStatuses[key] != handover.Moved {
				t.Errorf("the Work %s: %v in %s, %v in %s", key, oldStatuses[key], from, newStatuses[key], to)
			}
		default:
			if newStatuses[key] != handover.Active || oldStatuses[key] != handover.Moved || newValues[key] != value {
				t.Errorf("%s should have moved: %v in %s, %v in %s, unchanged %t", key, oldStatuses[key], from, newStatuses[key], to, newValues[key] == value)
			}
		}
	}
}

func TestMover(t *testing.T) {
	env := newCellEnv(t, 2)
	t.Run("moves", func(t *testing.T) { testMoves(t, env) })
	t.Run("crashes", func(t *testing.T) { testCrashes(t, env) })
	t.Run("lost answers", func(t *testing.T) { testLostAnswers(t, env) })
	t.Run("reversed", func(t *testing.T) { testReversed(t, env) })
	t.Run("deposed", func(t *testing.T) { testDeposed(t, env) })
	t.Run("objects being deleted", func(t *testing.T) { testDeleting(t, env) })
	t.Run("scaled while frozen", func(t *testing.T) { testScaledWhileFrozen(t, env) })
	t.Run("late bindings", func(t *testing.T) { testLate(t, env) })
	t.Run("services", func(t *testing.T) { testServices(t, env) })
	t.Run("crashes with shared transactions", func(t *testing.T) { testSharedTransactions(t, env) })
	t.Run("own revisions", func(t *testing.T) { testOwnRevisions(t, env) })
}

func testMoves(t *testing.T, env *cellEnv) {
	topology := joining(t, false, "cell-a", "cell-b")
	move, stay := env.sample(t, topology, "moves", 4, 2)
	env.populate(t, "cell-a", "moves", append(move, stay...)...)
	before, _ := env.contents(t, "cell-a", "moves")
	m := env.mover(t, topology)
	var moved slotSet
	m.Moved = moved.add
	if err := m.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.checkMoved(t, before, "cell-a", "cell-b", "moves", move)
	for slot := range slots.Slot(slots.Count) {
		if topology.Route(slot).Moving() != moved.has(slot) {
			t.Errorf("slot %v: moving %t, reported %t", slot, topology.Route(slot).Moving(), moved.has(slot))
		}
	}
	if done, total := m.Progress(); done != total || done < 8 {
		t.Errorf("%d of %d objects have moved", done, total)
	}
	// The annotations link the positions in both cells.
	key := env.stores["cell-a"].Key("deployments/moves/" + move[0])
	left, _, err := env.stores["cell-a"].Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	arrived, _, err := env.stores["cell-b"].Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	object, err := cellstore.Parse(arrived.Value)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := object.Annotations[names.MovedFromAnnotation], fmt.Sprintf("cell-a/%d", left.ModRevision); got != want {
		t.Errorf("moved from %s, want %s", got, want)
	}
	if least := m.Least(); least["cell-a"] < left.ModRevision || least["cell-b"] != 0 {
		t.Errorf("the last commits are %v", least)
	}
}

// testCrashes stops a mover after each of its transactions in turn, and lets another one finish.
func testCrashes(t *testing.T, env *cellEnv) {
	topology := joining(t, false, "cell-a", "cell-b")
	for after := 1; ; after++ {
		namespace := fmt.Sprintf("crash-%d", after)
		move, stay := env.sample(t, topology, namespace, 1, 1)
		env.populate(t, "cell-a", namespace, append(move, stay...)...)
		before, _ := env.contents(t, "cell-a", namespace)
		m := env.mover(t, topology)
		done := 0
		m.Window = 1 // one after the other
		m.Written = func(step handover.Step, _, _ string) error {
			if done++; done == after {
				return fmt.Errorf("after transaction %d, %v: %w", after, step, errStopped)
			}
			return nil
		}
		err := m.Run(t.Context())
		if err == nil {
			if after < 9 { // a template and a binding of four steps each, and a Work
				t.Errorf("there were only %d transactions", done)
			}
			return
		}
		if !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		if err := env.mover(t, topology).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.checkMoved(t, before, "cell-a", "cell-b", namespace, move)
	}
}

// testSharedTransactions stops movers while many objects share transactions, and lets another one finish.
func testSharedTransactions(t *testing.T, env *cellEnv) {
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "shared", 24, 0)
	env.populate(t, "cell-a", "shared", move...)
	before, _ := env.contents(t, "cell-a", "shared")
	for _, stop := range []handover.Step{handover.Freeze, handover.Copy, handover.Commit, handover.Activate} {
		m := env.mover(t, topology)
		m.pace = newPace(64)
		m.pace.limit = 64 // all at once
		var mu sync.Mutex
		done := 0
		m.Written = func(step handover.Step, _, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			if step == stop {
				done++
			}
			if done >= 6 { // and everything after it, so that objects remain for the next mover
				return errStopped
			}
			return nil
		}
		if err := m.Run(t.Context()); !errors.Is(err, errStopped) {
			t.Fatalf("after 6 steps %v: %v", stop, err)
		}
	}
	if err := env.mover(t, topology).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.checkMoved(t, before, "cell-a", "cell-b", "shared", move)
}

// testReversed stops a mover after each of its transactions in turn and reverses the change.
func testReversed(t *testing.T, env *cellEnv) {
	forth, back := joining(t, false, "cell-a", "cell-b"), joining(t, true, "cell-a", "cell-b")
	for after := 1; ; after++ {
		namespace := fmt.Sprintf("back-%d", after)
		move, _ := env.sample(t, forth, namespace, 1, 0)
		env.populate(t, "cell-a", namespace, move...)
		before, _ := env.contents(t, "cell-a", namespace)
		m := env.mover(t, forth)
		done := 0
		m.Window = 1
		m.Written = func(_ handover.Step, _, key string) error {
			if !strings.Contains(key, namespace) {
				return nil // an object of an earlier round
			}
			if done++; done == after {
				return errStopped
			}
			return nil
		}
		stopped := m.Run(t.Context())
		if err := env.mover(t, back).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		values, statuses := env.contents(t, "cell-a", namespace)
		_, there := env.contents(t, "cell-b", namespace)
		for key, value := range before {
			if isWork(key) {
				continue
			}
			if statuses[key] != handover.Active || values[key] != value || there[key] == handover.Active || there[key] == handover.Frozen {
				t.Errorf("after transaction %d, %s is %v in cell-a and %v in cell-b", after, key, statuses[key], there[key])
			}
		}
		if stopped == nil {
			return
		}
	}
}

func testDeposed(t *testing.T, env *cellEnv) {
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "deposed", 1, 0)
	env.populate(t, "cell-a", "deposed", move...)
	before, _ := env.contents(t, "cell-a", "deposed")
	old := env.mover(t, topology)
	started, going := make(chan struct{}), make(chan struct{})
	first := true
	old.Window = 1
	old.Written = func(handover.Step, string, string) error {
		if first {
			first = false
			close(started)
			<-going // paused until another mover has finished
		}
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- old.Run(t.Context()) }()
	<-started
	if err := env.mover(t, topology).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	values, _ := env.contents(t, "cell-a", "deposed")
	close(going)
	if err := <-ended; !errors.Is(err, cellstore.ErrFenced) {
		t.Errorf("the paused mover ended with %v", err)
	}
	if after, _ := env.contents(t, "cell-a", "deposed"); !maps.Equal(values, after) {
		t.Error("the paused mover has written")
	}
	env.checkMoved(t, before, "cell-a", "cell-b", "deposed", move)
}

func testDeleting(t *testing.T, env *cellEnv) {
	ctx := t.Context()
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "deleting", 1, 0)
	env.populate(t, "cell-a", "deleting", move...)
	from, to := clientOf(t, env.configs["cell-a"]), clientOf(t, env.configs["cell-b"])
	if err := from.AppsV1().Deployments("deleting").Delete(ctx, move[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := from.AppsV1().Deployments("deleting").Get(ctx, move[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := env.mover(t, topology).Run(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := to.AppsV1().Deployments("deleting").Get(ctx, move[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.UID != before.UID || !after.DeletionTimestamp.Equal(before.DeletionTimestamp) || !slices.Equal(after.Finalizers, before.Finalizers) || len(after.ManagedFields) != len(before.ManagedFields) {
		t.Errorf("it arrived as %+v", after.ObjectMeta)
	}
	if _, err := to.AppsV1().Deployments("deleting").Patch(ctx, move[0], "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is removed with its last finalizer", func(ctx context.Context) (bool, error) {
		_, err := to.AppsV1().Deployments("deleting").Get(ctx, move[0], metav1.GetOptions{})
		return err != nil && strings.Contains(err.Error(), "not found"), err
	})
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testScaledWhileFrozen scales an object between its copy and its commit. The fence does not see the label in a
// Scale, so only the transaction of the commit can detect it.
func testScaledWhileFrozen(t *testing.T, env *cellEnv) {
	ctx := t.Context()
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "scaled", 1, 0)
	env.populate(t, "cell-a", "scaled", move...)
	from, to := clientOf(t, env.configs["cell-a"]), clientOf(t, env.configs["cell-b"])
	m := env.mover(t, topology)
	var once bool
	m.Window = 1
	m.Written = func(step handover.Step, _, key string) error {
		if step != handover.Copy || once || !strings.Contains(key, "/deployments/") {
			return nil
		}
		once = true
		_, err := from.AppsV1().Deployments("scaled").Patch(ctx, move[0], "application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{}, "scale")
		return stopBy(err)
	}
	if err := m.Run(ctx); err != nil {
		t.Fatal(err)
	}
	after, err := to.AppsV1().Deployments("scaled").Get(ctx, move[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !once || *after.Spec.Replicas != 7 || after.Labels[names.RebalanceStatusLabel] != "" {
		t.Errorf("scaled %t, it arrived with %d replicas and labels %v", once, *after.Spec.Replicas, after.Labels)
	}
}

// testLate stores a binding while its template moves, as an engine does that has not seen the freeze.
func testLate(t *testing.T, env *cellEnv) {
	ctx := t.Context()
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "late", 2, 0)
	env.populate(t, "cell-a", "late", move[:1]...)
	store := env.stores["cell-a"]
	key := store.Key("work.karmada.io/resourcebindings/late/" + move[0] + "-deployment")
	binding, _, err := store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Client().Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	m := env.mover(t, topology)
	m.Window = 1
	m.Written = func(step handover.Step, _, written string) error {
		if step != handover.Freeze || !strings.Contains(written, "/deployments/") {
			return nil
		}
		_, err := store.Txn(ctx, env.term, []clientv3.Cmp{cellstore.Unchanged(key, 0)}, cellstore.Put(key, binding.Value))
		return stopBy(err)
	}
	if err := m.Run(ctx); err != nil {
		t.Fatal(err)
	}
	_, statuses := env.contents(t, "cell-b", "late")
	if statuses[key] != handover.Active {
		t.Errorf("the binding is %v in the new cell", statuses[key])
	}
}
