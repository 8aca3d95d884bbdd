package cellstore_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

func slotOf(namespace, name string) slots.Slot { return slots.Of(namespace, name) }

func TestStore(t *testing.T) {
	plane := testenv.StartFederation(t, local.Spec{WithoutHub: true, Cells: 1}).Cells[0]
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := storetest.For(t, plane)
	t.Run("terms", func(t *testing.T) { testTerms(t, s) })
	t.Run("pages", func(t *testing.T) { testPages(t, s) })
	t.Run("several keys", func(t *testing.T) { testGetAll(t, s) })
	t.Run("watches that catch up", func(t *testing.T) { testThrough(t, s) })
	t.Run("objects", func(t *testing.T) { testObjects(t, s, api) })
	t.Run("a store that hangs", func(t *testing.T) { testHanging(t, s, plane.Processes()) })
}

func testTerms(t *testing.T, s *cellstore.Store) {
	ctx := t.Context()
	// No term is stored yet, so even the lowest is accepted.
	if _, err := s.Txn(ctx, 0, nil, cellstore.Put("/test/first", nil)); err != nil {
		t.Fatal(err)
	}
	if err := s.RaiseTerm(ctx, 5); err != nil {
		t.Fatal(err)
	}
	put := func(term cellstore.Term, revision int64) error {
		_, err := s.Txn(ctx, term, []clientv3.Cmp{cellstore.Unchanged("/test/a", revision)}, cellstore.Put("/test/a", []byte("1")))
		return err
	}
	if err := put(5, 0); err != nil {
		t.Fatal(err)
	}
	if err := put(5, 0); !errors.Is(err, cellstore.ErrConflict) {
		t.Errorf("an existing key was created: %v", err)
	}
	if err := s.RaiseTerm(ctx, 7); err != nil {
		t.Fatal(err)
	}
	kv, _, err := s.Get(ctx, "/test/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range []cellstore.Term{5, 6} {
		if err := put(term, kv.ModRevision); !errors.Is(err, cellstore.ErrFenced) {
			t.Errorf("term %d: %v", term, err)
		}
	}
	if err := s.RaiseTerm(ctx, 6); !errors.Is(err, cellstore.ErrFenced) {
		t.Errorf("the term was lowered: %v", err)
	}
	// The first write of a new term raises the stored term.
	if err := put(8, kv.ModRevision); err != nil {
		t.Error(err)
	}
	if err := put(7, kv.ModRevision); !errors.Is(err, cellstore.ErrFenced) {
		t.Errorf("term 7 after a write of term 8: %v", err)
	}
}

func testPages(t *testing.T, s *cellstore.Store) {
	const count = 1300
	for i := range count {
		if _, err := s.Client().Put(t.Context(), fmt.Sprintf("/pages/%05d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for kv, err := range s.Range(t.Context(), "/pages/", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if kv.Key != fmt.Sprintf("/pages/%05d", seen) {
			t.Fatalf("got %s after %d keys", kv.Key, seen)
		}
		if seen++; seen == 1 {
			if _, err := s.Client().Put(t.Context(), "/pages/99999", "later"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen != count {
		t.Errorf("saw %d keys of %d", seen, count)
	}
}

func testGetAll(t *testing.T, s *cellstore.Store) {
	for _, key := range []string{"/several/a", "/several/c"} {
		if _, err := s.Client().Put(t.Context(), key, "value of "+key); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.GetAll(t.Context(), []string{"/several/c", "/several/b", "/several/a"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"value of /several/c", "", "value of /several/a"} {
		if got := all[i]; string(got.Value) != want || (got.ModRevision != 0) != (want != "") || got.Key != []string{"/several/c", "/several/b", "/several/a"}[i] {
			t.Errorf("got %q at %d for %s", got.Value, got.ModRevision, got.Key)
		}
	}
}

// testThrough watches from an old revision: etcd sends the events in batches, each with the revision of the store, not of the watch.
func testThrough(t *testing.T, s *cellstore.Store) {
	const count = 2500
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before, err := s.Client().Put(ctx, "/through/first", "")
	if err != nil {
		t.Fatal(err)
	}
	// The API server writes to the same store: the revisions of these puts need not follow each other.
	revisions := []int64{before.Header.Revision}
	for i := range count {
		put, err := s.Client().Put(ctx, fmt.Sprintf("/through/%d", i%7), "")
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, put.Header.Revision)
	}
	seen := 0
	for response := range s.Client().Watch(ctx, "/through/", clientv3.WithPrefix(), clientv3.WithRev(revisions[0]+1)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		seen += len(response.Events)
		if through := cellstore.Through(response); through != revisions[seen] {
			t.Fatalf("after %d events Through returns %d, want %d", seen, through, revisions[seen])
		}
		if seen >= count {
			break
		}
	}
	if seen != count {
		t.Errorf("saw %d events of %d", seen, count)
	}
}

func testObjects(t *testing.T, s *cellstore.Store, api kubernetes.Interface) {
	ctx := t.Context()
	created, err := api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kv, _, err := s.Get(ctx, s.Key("configmaps/default/c"))
	if err != nil {
		t.Fatal(err)
	}
	marked, err := cellstore.WithMark(kv.Value, cellstore.Mark{Labels: map[string]string{names.RebalanceStatusLabel: names.RebalanceMigrating}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Txn(ctx, 8, []clientv3.Cmp{cellstore.Unchanged(kv.Key, kv.ModRevision)}, cellstore.Put(kv.Key, marked)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the API server shows the mark", func(ctx context.Context) (bool, error) {
		read, err := api.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return read.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrating && read.UID == created.UID && read.Data["a"] == "b", nil
	})
	for kv, err := range s.Range(ctx, s.Prefix(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		object, err := cellstore.Parse(kv.Value)
		if err != nil {
			t.Errorf("%s: %v", kv.Key, err)
			continue
		}
		if class, _ := cellstore.Classify(object); class != cellstore.Local && object.Name != "c" {
			t.Errorf("%s must be local to the cell", kv.Key)
		}
	}
}

// testHanging pauses a store in the middle of a read. Every request must time out.
func testHanging(t *testing.T, s *cellstore.Store, processes []*process.Process) {
	etcd := processes[slices.IndexFunc(processes, func(p *process.Process) bool { return strings.HasSuffix(p.Name(), "/etcd") })]
	defer func() {
		if err := etcd.Resume(); err != nil {
			t.Error(err)
		}
	}()
	term, err := s.Term(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	next, stop := iter.Pull2(s.Range(t.Context(), "/pages/", 0))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*cellstore.RequestTimeout)
	defer cancel()
	requests := map[string]func() error{
		"Revision": func() error { _, err := s.Revision(ctx); return err },
		"Get":      func() error { _, _, err := s.Get(ctx, "/pages/00000"); return err },
		"GetAll":   func() error { _, err := s.GetAll(ctx, []string{"/pages/00000"}); return err },
		"Next":     func() error { _, err := s.Next(ctx, "/pages/", "/pages/"); return err },
		"Txn":      func() error { _, err := s.Txn(ctx, term, nil, cellstore.Put("/pages/00000", nil)); return err },
		"Range": func() error {
			for {
				_, err, more := next()
				if err != nil || !more {
					return err
				}
				read++
			}
		},
	}
	var all sync.WaitGroup
	for name, request := range requests {
		all.Go(func() {
			if err := request(); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("%s: %v; the error of its context: %v", name, err, ctx.Err())
			}
		})
	}
	all.Wait()
	if read == 0 {
		t.Error("the first page was not read")
	}
}
