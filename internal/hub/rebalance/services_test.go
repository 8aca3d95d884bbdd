package rebalance

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/testenv"
)

// testServices moves a Service whose cluster IP is free in the new cell, and one whose cluster IP another Service has
// there. The API server's repair loop leaves all three Services as they are.
func testServices(t *testing.T, env *cellEnv) {
	ctx := t.Context()
	topology := joining(t, false, "cell-a", "cell-b")
	move, _ := env.sample(t, topology, "services", 2, 0)
	env.populate(t, "cell-a", "services")
	from, to := clientOf(t, env.configs["cell-a"]).CoreV1().Services("services"), clientOf(t, env.configs["cell-b"]).CoreV1().Services("services")
	service := func(name, address string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	var originals []*corev1.Service
	for _, name := range move {
		created, err := from.Create(ctx, service(name, ""), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		originals = append(originals, created)
	}
	_, stay := env.sample(t, topology, "services", 0, 1)
	// Its slot does not move: the new cell owns it.
	taken, err := to.Create(ctx, service(stay[0], originals[1].Spec.ClusterIP), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := env.mover(t, topology).Run(ctx); err != nil {
		t.Fatal(err)
	}
	cluster := clientOf(t, env.configs["cell-b"])
	testenv.Eventually(t, "the repair loop has allocated the address of the first", func(ctx context.Context) (bool, error) {
		address, err := cluster.NetworkingV1().IPAddresses().Get(ctx, originals[0].Spec.ClusterIP, metav1.GetOptions{})
		return err == nil && address.Spec.ParentRef.Name == move[0], err
	})
	testenv.Eventually(t, "the repair loop has seen the second", func(ctx context.Context) (bool, error) {
		events, err := cluster.EventsV1().Events("services").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if event.Regarding.Name == move[1] && event.Reason == "ClusterIPAlreadyAllocated" {
				return true, nil
			}
		}
		return false, nil
	})
	for _, original := range append(slices.Clone(originals), taken) {
		now, err := to.Get(ctx, original.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if now.UID != original.UID || now.Spec.ClusterIP != original.Spec.ClusterIP || now.Spec.Ports[0].NodePort != original.Spec.Ports[0].NodePort || now.Generation != original.Generation {
			t.Errorf("the Service %s was %+v and is %+v", original.Name, original.Spec, now.Spec)
		}
	}
	// Deleting one of the two does not affect the other.
	if err := to.Delete(ctx, move[1], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	now, err := to.Get(ctx, taken.Name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != taken.ResourceVersion {
		t.Errorf("the Service that was there first has changed: %v", err)
	}
}
