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
	"github.com/cellplane/cellplane/internal/rollout"
	"github.com/cellplane/cellplane/internal/testenv"
)

var (
	seeds     = flag.Int("rollout.seeds", 1, "number of rollouts with disturbances")
	firstSeed = flag.Uint64("rollout.seed", 1, "seed of the first of them; the others follow")
)

// Rollouts with bounds from a seed, while engines are killed, two engines work at once, a member is paused, and the template changes again. The bounds hold at
// every event of every pod, each rollout finishes, and pods that it has no reason to touch stay.
func TestSeededRollouts(t *testing.T) {
	kill := startEngine(t)
	next := func() { kill = startEngine(t) } // of this test, not of one seed
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			replicas := int32(6 + random.IntN(7))
			surge, unavailable := bound(random), bound(random)
			if none := func(b intstr.IntOrString) bool { return b.String() == "0" || b.String() == "0%" }; none(surge) && none(unavailable) {
				surge = intstr.FromInt32(1) // the API refuses zero for both
			}
			bounds, err := rollout.DeploymentBounds(int(replicas), &surge, &unavailable)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d replicas, maxSurge %s, maxUnavailable %s", replicas, surge.String(), unavailable.String())
			w := newWorkload(t, replicas, surge, unavailable)
			w.pods = watchPods(t, w.ns, minReadySeconds*time.Second, bounds.Replicas-bounds.Unavailable, bounds.Replicas+bounds.Surge)
			version := 2
			w.setImage(version)
			w.begun(version)
			switch disturbance := random.IntN(4); disturbance {
			case 0:
				t.Log("the engine is killed")
				kill()
				next()
			case 1:
				t.Log("a second engine takes over")
				first := kill
				next()
				first()
			case 2:
				name := fmt.Sprintf("member%d", 1+random.IntN(3))
				t.Logf("%s is paused, and the template changes again", name)
				server, err := federation.Process(name + "/" + kubebin.KubeAPIServer)
				if err != nil {
					t.Fatal(err)
				}
				if err := server.Pause(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = server.Resume() })
				version++
				w.setImage(version)
				kill()
				next()
				if err := server.Resume(); err != nil {
					t.Fatal(err)
				}
			case 3:
				t.Log("the template changes again, and the engine is killed")
				version++
				w.setImage(version)
				kill()
				next()
			}
			w.finished(version, replicas)
			w.pods.held("a rollout with disturbances")

			// What is no update touches no pod.
			before := w.uids()
			kill()
			next()
			w.edit(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"note": "changed"} })
			testenv.Eventually(t, "the members have the annotation", func(context.Context) (bool, error) {
				for name := range members {
					if w.in(name).Annotations["note"] != "changed" {
						return false, errors.New(name + " does not have it")
					}
				}
				return true, nil
			})
			if after := w.uids(); !maps.Equal(before, after) {
				t.Errorf("pods were replaced although nothing of them has changed:\n%v\n%v", before, after)
			}
		})
	}
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
