package failover

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

var errUnreachable = errors.New("unreachable")

// failedCell is a hub with a failed cell and a single member, which is unreachable.
type failedCell struct {
	*Takeover
	hub      client.Client
	topology *slots.Map
	cell     *cellplanev1alpha1.Cell
	member   *clusterv1alpha1.Cluster
	// opened counts how often stores were opened, which a promotion begins with.
	opened int
}

func newFailedCell(t *testing.T) *failedCell {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := testenv.SharedAPIServer(t).RESTConfig()
	hub, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	name := "lost-" + rand.String(8)
	b := &failedCell{
		cell: &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cellplanev1alpha1.CellSpec{
			Endpoint:    cellplanev1alpha1.CellEndpoint{Server: "https://127.0.0.1:1", CABundle: []byte("none")},
			Credentials: cellplanev1alpha1.CellCredentials{SecretRef: cellplanev1alpha1.SecretReference{Namespace: "none", Name: "none"}},
			Etcd:        cellplanev1alpha1.CellEtcd{Endpoints: []string{"https://127.0.0.1:1"}, SecretRef: cellplanev1alpha1.SecretReference{Namespace: "none", Name: "none"}},
		}},
		member: &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1alpha1.ClusterSpec{SyncMode: clusterv1alpha1.Push}},
	}
	// Others have members on the same hub.
	b.hub = interceptor.NewClient(hub, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		err := c.List(ctx, list, options...)
		if clusters, ok := list.(*clusterv1alpha1.ClusterList); ok {
			clusters.Items = slices.DeleteFunc(clusters.Items, func(cluster clusterv1alpha1.Cluster) bool { return cluster.Name != name })
		}
		return err
	}})
	for _, object := range []client.Object{b.cell, b.member} {
		if err := hub.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hub.Delete(context.Background(), object) })
	}
	b.topology, err = slots.Compile(2, []slots.Cell{{Name: name, Weight: 1, State: slots.Failed}, {Name: "survivor", Weight: 1}})
	if err != nil {
		t.Fatal(err)
	}
	b.Takeover = &Takeover{
		Hub: config, Client: b.hub, Fresh: b.hub, Events: events.NewFakeRecorder(100), Term: term, StateDir: t.TempDir(),
		Cells: func(context.Context) map[string]client.Client { return map[string]client.Client{"survivor": b.hub} },
		Fence: func(context.Context, string) (*fence.Cell, error) { return nil, errUnreachable },
		Open: func(context.Context, string) (*cellstore.Store, error) {
			b.opened++
			return nil, errUnreachable
		},
	}
	return b
}

// read returns the cell as it is on the hub.
func (b *failedCell) read(t *testing.T) *cellplanev1alpha1.Cell {
	t.Helper()
	cell := &cellplanev1alpha1.Cell{}
	if err := b.hub.Get(t.Context(), client.ObjectKeyFromObject(b.cell), cell); err != nil {
		t.Fatal(err)
	}
	return cell
}

// set writes conditions of the cell.
func (b *failedCell) set(t *testing.T, conditions ...metav1.Condition) {
	t.Helper()
	for _, condition := range conditions {
		if err := b.setCondition(t.Context(), b.read(t), condition); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClosing closes and opens a member because of two cells, with an outdated Cluster.
func TestClosing(t *testing.T) {
	b := newFailedCell(t)
	reasons := func() []string {
		t.Helper()
		if err := b.hub.Get(t.Context(), client.ObjectKeyFromObject(b.member), b.member); err != nil {
			t.Fatal(err)
		}
		return splitNames(b.member.Annotations[names.UnfencedCellsAnnotation])
	}
	for _, closed := range []bool{true, false} {
		reasons()
		for _, cell := range []string{"one", "two"} {
			if err := b.close(t.Context(), b.member.DeepCopy(), cell, closed); err != nil {
				t.Fatal(err)
			}
		}
		if want := map[bool][]string{true: {"one", "two"}, false: nil}[closed]; !slices.Equal(reasons(), want) {
			t.Errorf("the member is closed because of %v, want %v", reasons(), want)
		}
	}
}

// TestClosedEverywhere has a hub manager close a member and stop before the other cells know. The next one waits
// until they do: until then their engines might write there, and so might that of the failed cell.
func TestClosedEverywhere(t *testing.T) {
	b := newFailedCell(t)
	stopped, stop := context.WithCancel(t.Context())
	lists := 0
	survivor := func(see func(*clusterv1alpha1.Cluster)) func(context.Context) map[string]client.Client {
		late := interceptor.NewClient(b.hub.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			err := c.List(ctx, list, options...)
			for i := range list.(*clusterv1alpha1.ClusterList).Items {
				see(&list.(*clusterv1alpha1.ClusterList).Items[i])
			}
			return err
		}})
		return func(context.Context) map[string]client.Client { return map[string]client.Client{"survivor": late} }
	}
	b.Cells = survivor(func(member *clusterv1alpha1.Cluster) {
		member.Annotations = nil
		stop()
	})
	if err := b.Do(stopped, b.topology, b.cell.Name); !errors.Is(err, context.Canceled) || b.opened > 0 {
		t.Fatalf("the first has opened %d stores: %v", b.opened, err)
	}
	lists = 0
	b.Cells = survivor(func(member *clusterv1alpha1.Cluster) {
		if lists <= 3 {
			member.Annotations = nil
		}
		if b.opened > 0 {
			t.Error("copies are promoted before the cells know that the member is closed")
		}
	})
	if err := b.Do(t.Context(), b.topology, b.cell.Name); !errors.Is(err, errUnreachable) || b.opened == 0 || lists != 4 {
		t.Errorf("the second has opened %d stores, having asked the other cell %d times: %v", b.opened, lists, err)
	}
	if fenced := meta.FindStatusCondition(b.read(t).Status.Conditions, names.CellFenced); fenced == nil || fenced.Reason != reasonUnfenced {
		t.Errorf("the condition Fenced is %+v", fenced)
	}
}

// TestReadmitted stops a hub manager between the two conditions that it writes for a returned cell.
func TestReadmitted(t *testing.T) {
	b := newFailedCell(t)
	b.set(t, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced},
		metav1.Condition{Type: names.CellPromoted, Status: metav1.ConditionTrue, Reason: reasonPromoted})
	written := 0
	once := *b.Takeover
	once.Client = interceptor.NewClient(b.hub.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if written++; written > 1 {
				return errUnreachable
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	if err := once.readmitted(t.Context(), b.read(t), "The cell is empty."); !errors.Is(err, errUnreachable) {
		t.Fatal(err)
	}
	for _, next := range []struct {
		what string
		do   func() error
		// promotes means that copies are promoted.
		promotes bool
	}{
		{"the cell goes on returning", func() error { return b.Readmit(t.Context(), b.topology, b.cell.Name) }, false},
		{"the cell fails again", func() error { return b.Do(t.Context(), b.topology, b.cell.Name) }, true},
	} {
		t.Run(next.what, func(t *testing.T) {
			half := b.read(t).Status.Conditions
			b.opened = 0
			if err := b.MakeUp(t.Context(), b.cell.Name); err != nil {
				t.Fatal(err)
			}
			if err := next.do(); (err != nil) != next.promotes || b.opened > 0 != next.promotes {
				t.Errorf("%d stores were opened: %v", b.opened, err)
			}
			if promoted := meta.FindStatusCondition(b.read(t).Status.Conditions, names.CellPromoted); promoted == nil || promoted.Status != metav1.ConditionFalse {
				t.Errorf("the next failure would not be handled: %+v", promoted)
			}
			b.set(t, half...)
		})
	}
}

// TestMembersOpen closes a member because of a cell that its failover could not revoke there. The member opens when the cell has returned, and
// stays closed as long as the cell may have an identity.
func TestMembersOpen(t *testing.T) {
	b := newFailedCell(t)
	unfenced := metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonUnfenced}
	returning := slots.Cell{Name: b.cell.Name, Weight: 1, State: slots.In}
	with := func(cells ...slots.Cell) *slots.Map {
		t.Helper()
		topology, err := slots.Compile(3, append(cells, slots.Cell{Name: "survivor", Weight: 1}))
		if err != nil {
			t.Fatal(err)
		}
		return topology
	}
	for _, test := range []struct {
		what     string
		topology *slots.Map
		fenced   metav1.Condition
		open     bool
	}{
		{"it has failed", b.topology, unfenced, false},
		{"it was removed, and the member is unreachable", with(), unfenced, false},
		{"it returns", with(returning), unfenced, false},
		{"it has returned", with(returning), metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonReadmitted}, true},
	} {
		b.set(t, test.fenced)
		if err := b.hub.Get(t.Context(), client.ObjectKeyFromObject(b.member), b.member); err != nil {
			t.Fatal(err)
		}
		if err := b.close(t.Context(), b.member, b.cell.Name, true); err != nil {
			t.Fatal(err)
		}
		if err := b.OpenMembers(t.Context(), test.topology); err != nil {
			t.Fatalf("%s: %v", test.what, err)
		}
		if err := b.hub.Get(t.Context(), client.ObjectKeyFromObject(b.member), b.member); err != nil {
			t.Fatal(err)
		}
		if open := b.member.Annotations[names.UnfencedCellsAnnotation] == ""; open != test.open {
			t.Errorf("%s: the member is open: %t, want %t", test.what, open, test.open)
		}
	}
}

// TestConditionsOfOthers has a hub manager that was deposed, or is slow, record that a cell has no identity after the cell has returned. That
// would keep the returned cell from its identities for ever.
func TestConditionsOfOthers(t *testing.T) {
	b := newFailedCell(t)
	b.set(t, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonUnfenced})
	slow, other := b.read(t), b.read(t)
	if err := b.setCondition(t.Context(), other, metav1.Condition{Type: names.CellBackedUp, Status: metav1.ConditionTrue, Reason: "Proof"}); err != nil {
		t.Fatal(err)
	}
	fenced := metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionTrue, Reason: reasonFenced}
	if err := b.setCondition(t.Context(), slow.DeepCopy(), fenced); err != nil {
		t.Errorf("another condition was written meanwhile: %v", err)
	}
	b.set(t, metav1.Condition{Type: names.CellFenced, Status: metav1.ConditionFalse, Reason: reasonReadmitted})
	if err := b.setCondition(t.Context(), slow.DeepCopy(), fenced); !errors.Is(err, errChangedMeanwhile) {
		t.Errorf("the cell has returned meanwhile: %v", err)
	}
	if !isReadmitted(b.read(t)) {
		t.Error("the cell is not known to have returned")
	}
}
