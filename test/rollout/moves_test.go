package rollout_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cellplane/cellplane/internal/cells"
)

var moves = flag.Int("rollout.moves", 1, "number of seeds by which workloads move to other cells in the middle of rollouts")

// Rollouts with bounds from a seed, in the middle of which the cell of the workload is drained, and later is lost and failed over from its backup. The bounds hold at
// every event of every pod, each rollout finishes in the other cell, and no other pod is replaced. Before that, an autoscaler changes the replicas in the middle of rollouts.
func TestRolloutsAcrossCells(t *testing.T) {
	world := newCellWorld(t)
	within := func(name string, do func(*testing.T)) bool {
		return t.Run(name, func(t *testing.T) {
			defer func(of *testing.T) { world.T = of }(world.T)
			world.T = t
			do(t)
		})
	}
	within("autoscaled", func(t *testing.T) { rollOutAutoscaled(t, world) })
	for seed := *firstSeed; seed < *firstSeed+uint64(*moves); seed++ {
		if !within(fmt.Sprint(seed), func(t *testing.T) { rollOutAcrossCells(t, world, seed) }) {
			t.Fatalf("replay with: make chaos-rollout ARGS='-rollout.seed=%d'", seed)
		}
	}
}

func rollOutAcrossCells(t *testing.T, world *cellWorld, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 6))
	world.whole()
	home, other := "cell-a", "cell-b"
	if random.IntN(2) == 0 {
		home, other = other, home
	}
	replicas := 8 + random.IntN(5)
	narrow := [][2]int{{0, 1}, {1, 0}, {1, 1}}[random.IntN(3)] // so that rollouts take long enough
	surge, unavailable := narrow[0], narrow[1]
	t.Logf("%d replicas in %s, maxSurge %d, maxUnavailable %d", replicas, home, surge, unavailable)
	w := world.newWorkload("moves", home)
	w.begin(int32(replicas), intstr.FromInt(surge), intstr.FromInt(unavailable))
	w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, replicas-unavailable, replicas+surge)
	untouched := world.bystanding()
	emergency := newEmergency(world, home)

	// Its cell is drained.
	resume := w.halfway(2, seed%2 == 0)
	world.change(home+" is drained", cells.Drain(home))
	world.disturb(other, random)
	world.stable()
	resume()
	w.finished(2, int32(replicas))
	w.pods.held("a rollout while the cell is drained")
	emergency.survived(other)
	emergency.keeps(other)

	// The cell comes back, and the workload with it. That is no update.
	before := w.uids()
	world.whole()
	world.takenOver(w, home)
	if after := w.uids(); !maps.Equal(before, after) {
		t.Errorf("pods were replaced although nothing of them has changed:\n%v\n%v", before, after)
	}

	// The cell is lost.
	world.takenOver(emergency.workload, home)
	emergency.happens("member2", 3, 11)
	resume = w.halfway(3, seed%2 == 1)
	world.backedUp(home) // what it has stored since is lost
	world.lose(home)
	world.disturb(other, random)
	world.stable()
	resume()
	w.finished(3, int32(replicas))
	w.pods.held("a rollout while the cell is failed over")
	emergency.survived(other)
	emergency.giveBack("member2")
	emergency.runs("member2", 3)
	emergency.runs("member1", 10) // as it was kept

	for _, bystander := range world.bystanders {
		world.takenOver(bystander, other)
	}
	if now := world.bystanding(); !maps.Equal(untouched, now) {
		t.Errorf("pods of workloads were replaced that were not updated:\n%v\n%v", untouched, now)
	}
}

// halfway begins a rollout. If it is to be paused, it stops until the function is called.
func (w *workload) halfway(version int, paused bool) (resume func()) {
	w.t.Helper()
	w.setImage(version)
	w.begun(version)
	if !paused {
		w.t.Logf("%d pods are old", w.old(version))
		return func() { w.t.Logf("%d pods are still old", w.old(version)) }
	}
	w.t.Log("the rollout is paused")
	w.edit(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	return func() {
		w.t.Helper()
		if w.old(version) == 0 {
			w.t.Errorf("all pods were updated although the rollout was paused:\n%s", w.describe())
		}
		w.edit(func(d *appsv1.Deployment) { d.Spec.Paused = false })
	}
}

// old returns how many pods do not have a version.
func (w *workload) old(version int) int {
	w.t.Helper()
	old := 0
	for name := range members {
		for has, count := range w.inMember(name) {
			if has != image(version) {
				old += count
			}
		}
	}
	return old
}

// disturb kills the engine of the cell that takes over, some of the time.
func (w *cellWorld) disturb(cell string, random *rand.Rand) {
	w.Helper()
	if random.IntN(3) > 0 {
		return
	}
	w.Logf("the engine of %s is killed", cell)
	engine, err := w.federation.Process(cell + "/engine")
	if err != nil {
		w.Fatal(err)
	}
	if err := engine.Kill(); err != nil {
		w.Fatal(err)
	}
}
