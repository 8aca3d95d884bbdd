package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/schedule"
)

// placedIn returns a binding placed in clusters like "a:2 b:3". Each replica requests one CPU.
func placedIn(t *testing.T, clusters string) *workv1alpha2.ResourceBinding {
	t.Helper()
	b := &workv1alpha2.ResourceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-deployment", ResourceVersion: "1"}}
	b.Spec.Resource = workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "web"}
	b.Spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	for _, text := range strings.Fields(clusters) {
		name, count, _ := strings.Cut(text, ":")
		target := workv1alpha2.TargetCluster{Name: name}
		if _, err := fmt.Sscan(count, &target.Replicas); err != nil {
			t.Fatal(err)
		}
		b.Spec.Clusters = append(b.Spec.Clusters, target)
		b.Spec.Replicas += target.Replicas
	}
	return b
}

// ofComponents turns a binding into one with two components, all replicas of which are in each of its clusters.
func ofComponents(b *workv1alpha2.ResourceBinding, replicas map[string]int32) {
	b.Spec.Replicas, b.Spec.ReplicaRequirements = 0, nil
	var shares []workv1alpha2.TargetComponent
	for _, name := range []string{"leader", "worker"} {
		request := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		b.Spec.Components = append(b.Spec.Components, workv1alpha2.Component{
			Name: name, Replicas: replicas[name], ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: request},
		})
		shares = append(shares, workv1alpha2.TargetComponent{Name: name, Replicas: replicas[name]})
	}
	for i := range b.Spec.Clusters {
		b.Spec.Clusters[i].Replicas, b.Spec.Clusters[i].Components = 0, shares
	}
}

// TestClaims checks the claims between two decisions: what is needed more is reserved, what is needed less is
// released.
func TestClaims(t *testing.T) {
	sets := func(clusters string, leaders, workers int32) *workv1alpha2.ResourceBinding {
		b := placedIn(t, clusters)
		ofComponents(b, map[string]int32{"leader": leaders, "worker": workers})
		return b
	}
	for _, test := range []struct {
		name          string
		before, after *workv1alpha2.ResourceBinding
		want          string // cluster/component +more of total, with the CPU request of a pod
	}{
		{"new workload", nil, placedIn(t, "a:2 b:3"), "a +2 of 2 at 1, b +3 of 3 at 1"},
		{"previously unplaced", placedIn(t, ""), placedIn(t, "a:2"), "a +2 of 2 at 1"},
		{"scaled up in one cluster", placedIn(t, "a:2 b:3"), placedIn(t, "a:5 b:3"), "a +3 of 5 at 1"},
		{"scaled down", placedIn(t, "a:5"), placedIn(t, "a:1"), "a -4 of 1 at 1"},
		{"moved", placedIn(t, "a:2"), placedIn(t, "b:2"), "b +2 of 2 at 1, a -2 of 0 at 1"},
		{"partly moved", placedIn(t, "a:4 b:1"), placedIn(t, "a:1 b:4"), "a -3 of 1 at 1, b +3 of 4 at 1"},
		{"same clusters in another order", placedIn(t, "a:1 b:2"), placedIn(t, "b:2 a:1"), ""},
		{"scaled to zero", placedIn(t, "a:2"), placedIn(t, "a:0"), "a -2 of 0 at 1"},
		{"without replicas", nil, placedIn(t, "a:0"), ""},
		{"component set", nil, sets("a:0", 1, 3), "a/leader +1 of 1 at 2, a/worker +3 of 3 at 2"},
		{"component set scaled up", sets("a:0", 1, 3), sets("a:0", 1, 5), "a/worker +2 of 5 at 2"},
		{"component set moved", sets("a:0", 1, 3), sets("b:0", 1, 3), "b/leader +1 of 1 at 2, a/leader -1 of 0 at 2, b/worker +3 of 3 at 2, a/worker -3 of 0 at 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCell(t)
			s := New(c, nil, Options{})
			p := &reservations{cell: c, profiles: &s.profiles, pods: &s.pods}
			var got []string
			for _, claim := range p.claims(test.before, test.after) {
				if claim.Workload != workloadOf(test.after) || claim.Waits {
					t.Errorf("unexpected claim %+v", claim)
				}
				where := strings.TrimSuffix(claim.Cluster+"/"+claim.Component, "/")
				got = append(got, fmt.Sprintf("%s %+d of %d at %s", where, claim.More, claim.Total, claim.Pod.Requests.Cpu()))
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("claims = %s\nwant %s", strings.Join(got, ", "), test.want)
			}
		})
	}
}

// outdatedGuard returns an outdatedError the given number of times.
type outdatedGuard struct{ times, asked int }

// Admit implements Guard.
func (g *outdatedGuard) Admit(context.Context, *workv1alpha2.ResourceBinding, *workv1alpha2.ResourceBinding) (Hold, *schedule.Failure, error) {
	if g.asked++; g.asked > g.times {
		return nil, &schedule.Failure{Reason: "Enough"}, nil // a failure, so that nothing is written
	}
	return nil, nil, Outdated("cluster a is full; other bindings took the capacity first")
}

// TestLostRaces repeats a decision whose capacity was taken by others. After several attempts it retries soon:
// capacity may be left, but no event will report it.
func TestLostRaces(t *testing.T) {
	guard := &outdatedGuard{times: maxDecisions + 1}
	c := newCell(t)
	s := New(c, nil, Options{Guards: []Guard{guard}})
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	c.Clusters.Set(cluster)
	b := placedIn(t, "")
	b.Spec.Replicas, b.Spec.Placement = 1, &policyv1alpha1.Placement{}
	c.Bindings("ns").Set(b)
	key := cell.Key{Namespace: "ns", Name: b.Name}
	look := func(asked int) (queue.Later, Outcome) {
		t.Helper()
		var later queue.Later
		if err := s.Reconcile(t.Context(), key); !errors.As(err, &later) {
			t.Fatalf("unexpected error %v", err)
		}
		if guard.asked != asked {
			t.Errorf("Admit was called %d times, want %d", guard.asked, asked)
		}
		outcome, _ := s.Last(key)
		return later, outcome
	}
	later, outcome := look(maxDecisions)
	if later.After != contentionBackoff || outcome.Failure == nil || !strings.Contains(outcome.Failure.Message, "other bindings took") {
		t.Errorf("retry after %v, failure %v", later.After, outcome.Failure)
	}
	later, outcome = look(maxDecisions + 2)
	if later.After != retryPeriod || outcome.Failure == nil || outcome.Failure.Reason != "Enough" {
		t.Errorf("retry after %v, failure %v", later.After, outcome.Failure)
	}
	if !slices.Contains(s.Refused("Enough"), key) {
		t.Error("the binding is not in the waiting set")
	}
}
