package storespace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/etcdtest"
)

const (
	mib = 1 << 20
	// key and value are written again and again, which leaves old revisions.
	key       = "/registry/filler"
	valueSize = 256 << 10
)

// etcd is an etcd of its own, and a Cell for it.
type etcd struct {
	members []etcdtest.Member
	store   *cellstore.Store
	cell    *cellplanev1alpha1.Cell
	keeper  *Keeper
	written int
}

// start starts an etcd with members of a quota.
func start(t *testing.T, size int, quota int64) *etcd {
	t.Helper()
	started := etcdtest.Start(t, size, fmt.Sprintf("--quota-backend-bytes=%d", quota))
	e := &etcd{members: started.Members, cell: &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: "storespace-" + rand.String(8)}}}
	ref := cellplanev1alpha1.SecretReference{Namespace: "some", Name: "secret"}
	e.cell.Spec = cellplanev1alpha1.CellSpec{
		Endpoint: cellplanev1alpha1.CellEndpoint{Server: "https://127.0.0.1:1", CABundle: []byte("some")}, Credentials: cellplanev1alpha1.CellCredentials{SecretRef: ref},
		Etcd: cellplanev1alpha1.CellEtcd{Endpoints: started.Endpoints, SecretRef: ref},
	}
	var err error
	if e.store, err = cellstore.Open(e.cell, started.Credentials); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.store.Close() })
	e.keeper = &Keeper{Hub: hubWith(t, e.cell), Events: events.NewFakeRecorder(100), Open: func(context.Context, string) (*cellstore.Store, error) { return e.store, nil }, Term: 1}
	if err := e.store.RaiseTerm(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return e
}

// hubWith returns a client of a hub with a Cell.
func hubWith(t *testing.T, cell *cellplanev1alpha1.Cell) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub, err := client.New(testenv.SharedAPIServer(t).RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Create(t.Context(), cell); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hub.Delete(context.Background(), &cellplanev1alpha1.Cell{ObjectMeta: metav1.ObjectMeta{Name: cell.Name}})
	})
	return hub
}

// fill writes one key, or another each time, until all members have reached a part of their quota. It returns the error of the last write.
func (e *etcd) fill(t *testing.T, part float64, same bool) error {
	t.Helper()
	for ; ; e.written++ {
		to := key
		if !same {
			to = fmt.Sprintf("%s-%d", key, e.written)
		}
		value := bytes.Repeat([]byte{byte(e.written)}, valueSize)
		if _, err := e.store.Client().Put(t.Context(), to, string(value)); err != nil {
			return err
		}
		if !slices.ContainsFunc(e.look(t).members, func(m member) bool { return !m.has(m.size, part) }) {
			return nil
		}
	}
}

// fillUp writes until the etcd is full, and the keeper cannot help.
func (e *etcd) fillUp(t *testing.T, same bool, begin func() *memory) {
	t.Helper()
	for {
		if err := e.fill(t, 2, same); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("it was filled until %v", err)
		}
		m := begin()
		e.tend(t, m) // compacts
		if seen := e.tend(t, m); len(seen.full) > 0 {
			return
		}
	}
}

func (e *etcd) look(t *testing.T) *view {
	t.Helper()
	seen, err := newMemory().look(t.Context(), e.store)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// tend does what the keeper does each time, and returns what is to see then.
func (e *etcd) tend(t *testing.T, m *memory) *view {
	t.Helper()
	if err := e.keeper.tend(t.Context(), e.cell, m, false); err != nil {
		t.Fatal(err)
	}
	return e.look(t)
}

func (e *etcd) condition() metav1.Condition {
	return *meta.FindStatusCondition(e.cell.Status.Conditions, names.CellStoreSpace)
}

// longAgo is a memory of the present revision as one that is old.
func (e *etcd) longAgo(t *testing.T) *memory {
	t.Helper()
	revision, err := e.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := newMemory()
	m.note(revision, time.Now().Add(-2*history))
	return m
}

// compact removes all old revisions, as API servers do, and writes until all members tell what is not in use any more.
func (e *etcd) compact(t *testing.T) {
	t.Helper()
	revision, err := e.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.store.Client().Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all members have compacted", func(ctx context.Context) (bool, error) {
		if _, err := e.store.Client().Put(ctx, "/registry/small", "some"); err != nil {
			return false, err
		}
		seen, err := newMemory().look(ctx, e.store)
		if err != nil || len(seen.members) < len(e.members) {
			return false, err
		}
		return !slices.ContainsFunc(seen.members, func(m member) bool { return m.has(m.inUse, relaxed) }), nil
	})
}

// TestMembers has an etcd of three members that is mostly unused. They are defragmented while somebody writes, who notices no more than a change of the
// leader.
func TestMembers(t *testing.T) {
	e := start(t, 3, 64*mib)
	if err := e.fill(t, low, true); err != nil {
		t.Fatal(err)
	}
	e.compact(t)
	before := e.look(t)
	expectUntouched := func(while string) {
		t.Helper()
		for i, is := range e.look(t).members {
			if is.id != before.members[i].id || is.size < before.members[i].size {
				t.Errorf("%s: member %x had %d MiB, and has %d", while, is.id, before.members[i].size/mib, is.size/mib)
			}
		}
	}

	e.keeper.TellOnly = true
	e.tend(t, newMemory())
	e.keeper.TellOnly = false
	expectUntouched("told to do nothing")
	if got := e.condition(); got.Reason != reasonLow || !strings.Contains(got.Message, "gives it back") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}

	if err := e.members[0].Pause(); err != nil {
		t.Fatal(err)
	}
	err := e.keeper.tend(t.Context(), e.cell, newMemory(), false)
	if err := errors.Join(err, e.members[0].Resume()); err != nil {
		t.Fatal(err)
	}
	if got := e.condition(); got.Reason != reasonLow || !strings.Contains(got.Message, "of 3 members, 2 answer") {
		t.Errorf("while one member hangs: %s: %s", got.Reason, got.Message)
	}
	testenv.Eventually(t, "all members serve again", func(ctx context.Context) (bool, error) {
		seen, err := newMemory().look(ctx, e.store)
		return err == nil && seen.problem == "", err
	})
	expectUntouched("while one member hung")

	leader := e.look(t).members[0].leads
	stop := make(chan struct{})
	var done, failed int
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), cellstore.RequestTimeout)
			_, err := e.store.Client().Put(ctx, "/registry/small", "some")
			cancel()
			if err != nil {
				failed++
				continue
			}
			done++
		}
	})
	seen := e.tend(t, newMemory())
	close(stop)
	writing.Wait()
	// A write that is under way when the leader changes may fail; here one is always.
	if _, err := e.store.Client().Put(t.Context(), "/registry/small", "some"); err != nil || done == 0 || failed > 2 {
		t.Errorf("%d writes were successful and %d failed; then: %v", done, failed, err)
	}
	for i, is := range seen.members {
		if is.size > before.members[i].size/2 {
			t.Errorf("member %x had %d MiB, and has %d", is.id, before.members[i].size/mib, is.size/mib)
		}
	}
	if seen.members[0].leads == leader {
		t.Error("the leader was defragmented, and still leads")
	}
	if got := e.condition(); got.Reason != reasonEnough {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

// TestFull has etcds that have used up their quota with old revisions, and then with data.
func TestFull(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", size), func(t *testing.T) {
			e := start(t, size, 64*mib)
			e.fillUp(t, true, newMemory) // knows no revision that is old enough
			if got := e.condition(); got.Reason != reasonNoSpace || !strings.Contains(got.Message, "It will be compacted") {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}

			deposed := &Keeper{Hub: e.keeper.Hub, Events: e.keeper.Events, Open: e.keeper.Open, Term: 0}
			if err := deposed.tend(t.Context(), e.cell, e.longAgo(t), false); !errors.Is(err, cellstore.ErrFenced) {
				t.Errorf("a hub manager of an earlier term gets %v", err)
			}
			if seen := e.look(t); len(seen.full) == 0 {
				t.Errorf("a hub manager of an earlier term has changed the store: %+v", seen)
			}

			m := e.longAgo(t)
			testenv.Eventually(t, "it takes writes again", func(ctx context.Context) (bool, error) {
				m.defragmented = map[uint64]time.Time{} // as if that was long ago: a member may not have compacted before
				err := e.keeper.tend(ctx, e.cell, m, false)
				return e.condition().Reason != reasonNoSpace, err
			})
			if got := e.condition(); got.Reason != reasonEnough {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
			e.fillUp(t, false, func() *memory { return e.longAgo(t) })
			if got := e.condition(); got.Reason != reasonNoSpace || !strings.Contains(got.Message, "add a cell") {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
			if got := e.keeper.Fullness(e.cell.Name); !strings.Contains(got, "90 percent") {
				t.Errorf("copies are not refused: %q", got)
			}
		})
	}
}

// TestPublish writes the condition of a Cell beside those of others, and only if it has changed.
func TestPublish(t *testing.T) {
	e := start(t, 1, 64*mib)
	other := metav1.Condition{Type: names.CellReady, Status: metav1.ConditionTrue, Reason: "Other", LastTransitionTime: metav1.Now()}
	e.cell.Status.Conditions = []metav1.Condition{other}
	if err := e.keeper.Hub.Status().Update(t.Context(), e.cell); err != nil {
		t.Fatal(err)
	}
	tended := func(failed bool) *cellplanev1alpha1.Cell {
		t.Helper()
		if err := e.keeper.tend(t.Context(), e.cell, newMemory(), failed); err != nil {
			t.Fatal(err)
		}
		now := &cellplanev1alpha1.Cell{}
		if err := e.keeper.Hub.Get(t.Context(), client.ObjectKeyFromObject(e.cell), now); err != nil {
			t.Fatal(err)
		}
		*e.cell = *now
		return now
	}
	now := tended(false)
	if !meta.IsStatusConditionTrue(now.Status.Conditions, names.CellStoreSpace) || !meta.IsStatusConditionTrue(now.Status.Conditions, names.CellReady) {
		t.Errorf("the conditions are %v", now.Status.Conditions)
	}
	version := now.ResourceVersion
	if again := tended(false); again.ResourceVersion != version {
		t.Error("a condition that has not changed was written again")
	}
	if got := meta.FindStatusCondition(tended(true).Status.Conditions, names.CellStoreSpace); got.Status != metav1.ConditionUnknown || got.Reason != reasonFailed {
		t.Errorf("of a cell that has failed: %+v", got)
	}
	if err := e.members[0].Pause(); err != nil {
		t.Fatal(err)
	}
	err := e.keeper.tend(t.Context(), e.cell, newMemory(), false)
	if resumed := e.members[0].Resume(); resumed != nil {
		t.Fatal(resumed)
	}
	if got := e.condition(); err == nil || got.Reason != reasonUnreadable {
		t.Errorf("while it hangs: %v, %+v", err, got)
	}
}
