package rebalance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/cells"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/cellstore/storetest"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/testenv"
)

// checkLate expects that of objects that were created twice, those are left whose creation was acknowledged: by their former owners.
func (s *hubEnv) checkLate(t *testing.T, late map[string]string) {
	t.Helper()
	owners := s.owners(t)
	for name, former := range late {
		cell := owners.Name(owners.Route(slots.Of(shop, name)).New)
		var got corev1.ConfigMap
		if err := s.cells[cell].Get(t.Context(), types.NamespacedName{Namespace: shop, Name: name}, &got); err != nil || got.Data["cell"] != former {
			t.Errorf("%s in %s is of %q, want %q: %v", name, cell, got.Data["cell"], former, err)
		}
	}
}

// awaitBlocked waits until a change is blocked because of some words.
func (s *hubEnv) awaitBlocked(t *testing.T, words string) {
	t.Helper()
	testenv.Eventually(t, "the change is blocked", func(ctx context.Context) (bool, error) {
		topology := s.topology(ctx, t)
		settled := meta.FindStatusCondition(topology.Status.Conditions, names.TopologySettled)
		return settled != nil && settled.Reason == "Blocked" && settled.ObservedGeneration == topology.Generation && strings.Contains(settled.Message, words), fmt.Errorf("settled is %+v", settled)
	})
}

// own is an object that a cell has before it joins.
func own() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "own"}}
}

// testNotJoined removes stale copies while a Cell that has never been in a topology has an object. It is not the federation's, and stays.
func (s *hubEnv) testNotJoined(t *testing.T) {
	testenv.Eventually(t, "the namespace is in the cell", func(ctx context.Context) (bool, error) {
		err := s.cells["cell-c"].Create(ctx, own())
		return err == nil, err
	})
	weight := func(weight int32, grace time.Duration) {
		t.Helper()
		s.edit(t, func(spec *cellplanev1alpha1.CellTopologySpec) error {
			spec.Migration.GracePeriod = &metav1.Duration{Duration: grace}
			return cells.Weight("cell-b", weight)(spec)
		})
	}
	weight(2, time.Millisecond)
	testenv.Eventually(t, "stale copies are removed", func(ctx context.Context) (bool, error) {
		topology := s.topology(ctx, t)
		return topology.Status.ObservedGeneration == topology.Generation && meta.IsStatusConditionTrue(topology.Status.Conditions, names.TopologySettled), nil
	})
	if err := s.cells["cell-c"].Get(t.Context(), client.ObjectKeyFromObject(own()), own()); err != nil {
		t.Errorf("the object of a cell that has not joined: %v", err)
	}
	weight(1, time.Hour)
}

// testReversed reverses a change while a slot has two objects of one name: a late one in the cell that the slot was leaving, and the one that was
// created in its new cell. The latter returns with the slot, and an object that had not moved is still there.
func (s *hubEnv) testReversed(t *testing.T) {
	const old = "cell-a"
	owners := s.owners(t)
	twice, stays := "", ""
	for i := 0; twice == "" || stays == ""; i++ {
		name := fmt.Sprintf("reversed-%d", i)
		switch slot := slots.Of(shop, name); {
		case owners.Name(owners.Route(slot).New) != old:
		case twice == "":
			twice = name
		case slot == slots.Of(shop, twice):
			stays = name
		}
	}
	object := func(name, cell string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, Data: map[string]string{"cell": cell}}
	}
	s.create(t, s.cells[old], object(stays, old))
	unstick := s.stick(t, old, slots.Of(shop, twice))
	s.change(t, cells.Drain(old))
	testenv.Eventually(t, "objects move", func(ctx context.Context) (bool, error) {
		return s.topology(ctx, t).Status.Phase == cellplanev1alpha1.TopologyMoving, nil
	})
	moving := s.owners(t)
	next := moving.Name(moving.Route(slots.Of(shop, twice)).New)
	s.create(t, s.cells[next], object(twice, next))
	s.create(t, s.cells[old], object(twice, old))
	s.change(t, cells.Reverse)
	testenv.Eventually(t, "the reversed change is in force", func(ctx context.Context) (bool, error) {
		topology := s.topology(ctx, t)
		return topology.Status.FencedEpoch == topology.Generation, nil
	})
	unstick(next)
	s.awaitStable(t)
	s.checkLate(t, map[string]string{twice: next, stays: old})
	for _, name := range []string{twice, stays} {
		if err := s.cells[old].Delete(t.Context(), object(name, old)); err != nil {
			t.Error(err)
		}
	}
}

// stick stores an object in a slot of a cell that no API server serves. The mover can copy, but not verify it, and commits nothing in that slot
// until the function is called, with the cell that has got the copy.
func (s *hubEnv) stick(t *testing.T, cell string, slot slots.Slot) (unstick func(string)) {
	t.Helper()
	i := 0
	for slots.Of(shop, fmt.Sprintf("stuck-%d", i)) != slot {
		i++
	}
	name := fmt.Sprintf("stuck-%d", i)
	stores := map[string]*cellstore.Store{}
	for _, plane := range s.federation.Cells {
		stores[plane.Name()] = storetest.For(t, plane)
	}
	key := func(store *cellstore.Store) string { return store.Key("example.net/stucks/" + shop + "/" + name) }
	value := fmt.Sprintf(`{"apiVersion":"example.net/v1","kind":"Stuck","metadata":{"namespace":%q,"name":%q,"uid":"stuck"}}`, shop, name)
	if _, err := stores[cell].Client().Put(t.Context(), key(stores[cell]), value); err != nil {
		t.Fatal(err)
	}
	return func(copied string) {
		t.Helper()
		for _, name := range []string{copied, cell} {
			if _, err := stores[name].Client().Delete(t.Context(), key(stores[name])); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// testReturn has a cell join that was drained, before what was stored in it since is removed.
func (s *hubEnv) testReturn(t *testing.T, home map[string]string) {
	before := s.snapshots(t, home)
	late := s.createLate(t, "returned")
	s.edit(t, cells.Add("cell-a", 1))
	s.checkLate(t, late)
	if moved := s.checkOwners(t, home, before); moved == 0 {
		t.Error("nothing has moved")
	}
	s.awaitLabels(t, home)
	s.edit(t, cells.Drain("cell-a"))
	s.checkOwners(t, home, before)
	s.awaitLabels(t, home)
}
