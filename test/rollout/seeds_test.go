package rollout_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	seeds     = flag.Int("rollout.seeds", 1, "number of rollouts with disturbances")
	firstSeed = flag.Uint64("rollout.seed", 1, "seed of the first of them; the others follow")
)

// Rollouts with bounds from a seed, of pods that take a while to become ready. In the middle of each, something disturbs it. The bounds hold at every event of
// every pod, each rollout finishes, and pods that it has no reason to touch stay.
func TestSeededRollouts(t *testing.T) {
	e := &replaceable{t: t} // of this test, not of one seed
	e.kill = startEngine(t)
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			replicas := int32(6 + random.IntN(7))
			surge, unavailable := bound(random), bound(random)
			if none := func(b intstr.IntOrString) bool { return b.String() == "0" || b.String() == "0%" }; none(surge) && none(unavailable) {
				surge = intstr.FromInt32(1) // the API refuses zero for both
			}
			disturbance := disturbances[random.IntN(len(disturbances))]
			slow := readiness{500 * time.Millisecond, time.Duration(1+random.IntN(4)) * time.Second}
			t.Logf("%d replicas, maxSurge %s, maxUnavailable %s, pods are ready after %s to %s", replicas, surge.String(), unavailable.String(), slow.least, slow.most)
			d := &disturbed{workload: newSlowWorkload(t, slow, replicas, surge, unavailable), random: random, engine: e, replicas: replicas, version: 1}
			d.watch(replicas)
			d.update()
			d.begun(d.version)
			t.Log(disturbance.what)
			disturbance.happens(d)
			d.finished(d.version, d.replicas)
			d.placed()
			d.pods.held("a rollout with disturbances")

			// What is no update touches no pod.
			before := d.uids()
			e.restart()
			d.edit(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"note": "changed"} })
			testenv.Eventually(t, "the clusters have the annotation", func(context.Context) (bool, error) {
				for _, target := range d.binding().Spec.Clusters {
					if d.in(target.Name).Annotations["note"] != "changed" {
						return false, errors.New(target.Name + " does not have it")
					}
				}
				return true, nil
			})
			if after := d.uids(); !maps.Equal(before, after) {
				t.Errorf("pods were replaced although nothing of them has changed:\n%v\n%v", before, after)
			}
		})
	}
}

// replaceable is an engine that can be replaced.
type replaceable struct {
	t    *testing.T
	kill func()
}

// restart kills the engine, and then starts another one.
func (r *replaceable) restart() {
	r.kill()
	r.kill = startEngine(r.t)
}

// takeOver starts another engine, and then kills the first one.
func (r *replaceable) takeOver() {
	first := r.kill
	r.kill = startEngine(r.t)
	first()
}

// disturbed is a rollout that something disturbs.
type disturbed struct {
	*workload
	random   *rand.Rand
	engine   *replaceable
	replicas int32
	version  int
}

// disturbances are what may happen in the middle of a rollout.
var disturbances = []struct {
	what    string
	happens func(*disturbed)
}{
	{"the engine is killed", func(d *disturbed) { d.engine.restart() }},
	{"a second engine takes over", func(d *disturbed) { d.engine.takeOver() }},
	{"a member is paused, and the template changes again", (*disturbed).pauseMember},
	{"the template changes again, and the engine is killed", func(d *disturbed) {
		d.update()
		d.engine.restart()
	}},
	{"a member fails, and the workload is evicted from it", (*disturbed).loseMember},
	{"the workload is scaled, and scaled again", (*disturbed).rescale},
}

// update changes the template.
func (d *disturbed) update() {
	d.t.Helper()
	d.version++
	d.setImage(d.version)
}

// perhaps does something some of the time.
func (d *disturbed) perhaps(what string, do func()) {
	d.t.Helper()
	if d.random.IntN(2) == 0 {
		d.t.Log(what)
		do()
	}
}

func (d *disturbed) anyMember() string { return fmt.Sprintf("member%d", 1+d.random.IntN(3)) }

func (d *disturbed) pauseMember() {
	d.t.Helper()
	name := d.anyMember()
	d.t.Log(name)
	server, err := federation.Process(name + "/" + kubebin.KubeAPIServer)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = server.Resume() })
	d.update()
	d.engine.restart()
	if err := server.Resume(); err != nil {
		d.t.Fatal(err)
	}
}

// rescale scales the workload twice. The bounds are the loosest of all these numbers of replicas: what clusters were allowed by the first may still be in force.
func (d *disturbed) rescale() {
	d.t.Helper()
	all := []int32{d.replicas}
	for range 2 {
		other := int32(4 + d.random.IntN(10))
		if other >= d.replicas {
			other++
		}
		d.replicas = other
		all = append(all, d.replicas)
		d.t.Logf("to %d replicas", d.replicas)
		d.allow(all...)
		d.scale(d.replicas)
		d.perhaps("the engine is killed", d.engine.restart)
	}
}

func (d *disturbed) loseMember() {
	d.t.Helper()
	name := d.anyMember()
	d.t.Log(name)
	back := d.lose(name)
	d.perhaps("the template changes again", d.update)
	d.perhaps("the engine is killed", d.engine.restart)
	d.perhaps("it is away until the others have replaced it", func() { d.replaced(name, d.version, d.replicas) })
	back()
}

// bound draws maxSurge or maxUnavailable, as a number or a percentage.
func bound(random *rand.Rand) intstr.IntOrString {
	if random.IntN(2) == 0 {
		return intstr.FromInt(random.IntN(4))
	}
	return intstr.FromString(fmt.Sprintf("%d%%", 10*random.IntN(5)))
}

// uids returns the pods of all members.
func (w *workload) uids() map[string]bool {
	w.t.Helper()
	uids := map[string]bool{}
	for _, member := range members {
		var list corev1.PodList
		if err := member.List(w.t.Context(), &list, ctrlclient.InNamespace(w.ns)); err != nil {
			w.t.Fatal(err)
		}
		for i := range list.Items {
			uids[string(list.Items[i].UID)] = true
		}
	}
	return uids
}
