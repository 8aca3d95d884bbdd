package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// TestRefusedRequirements checks that requirements which were refused are never taken for the admitted ones, however often they are tried.
func TestRefusedRequirements(t *testing.T) {
	wanting := func(b *workv1alpha2.ResourceBinding, cpu string) *workv1alpha2.ResourceBinding {
		b = b.DeepCopy()
		b.Spec.ReplicaRequirements = &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
		return b
	}
	check := func(what string, b *workv1alpha2.ResourceBinding, cpu string, held bool) {
		t.Helper()
		if got := Admitted(b).Replica.ResourceRequest.Cpu().String(); got != cpu || Held(b) != held {
			t.Errorf("%s: %s is admitted, held is %t; want %s, %t", what, got, Held(b), cpu, held)
		}
	}
	placed := wanting(&workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "a", Replicas: 1}}}}, "10m")
	refused, accepted := &decision{refused: true}, &decision{}
	mark := func(d *decision, before, after *workv1alpha2.ResourceBinding) *workv1alpha2.ResourceBinding {
		t.Helper()
		if err := d.mark(before, after); err != nil {
			t.Fatal(err)
		}
		return after
	}
	first := mark(refused, placed, wanting(placed, "20m"))
	check("refused", first, "10m", true)
	again := mark(refused, first, first.DeepCopy())
	check("refused again", again, "10m", true)
	more := mark(refused, again, wanting(again, "30m"))
	check("more is refused", more, "10m", true)
	check("reduced", mark(accepted, more, wanting(more, "12m")), "12m", false)
	check("the same as admitted", mark(refused, more, wanting(more, "10m")), "10m", false)
	check("never placed", mark(refused, nil, wanting(&workv1alpha2.ResourceBinding{}, "20m")), "20m", false)
}
