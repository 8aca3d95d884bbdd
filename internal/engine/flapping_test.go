package engine_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/testenv"
)

// A member is killed, hangs and is killed again while templates change. The other member gets every change, this one
// the last change whenever it is back. The number of writes depends on the changes, not on the length of the outage.
func TestMemberFlaps(t *testing.T) {
	const templates = 4
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"ConfigMap"}))
	name := func(i int) string { return fmt.Sprintf("cm-%d", i) }
	identities := map[string]types.UID{}
	for i := range templates {
		create(t, configMap(ns, name(i), map[string]string{"k": "0"}))
	}
	for i := range templates {
		delivered(t, "member1", ns, name(i), "k", "0")
		identities[name(i)] = delivered(t, "member2", ns, name(i), "k", "0").UID
	}
	settle(t)

	server, err := federation.Process("member2/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resurrect() })
	outages := []struct{ begin, end func() error }{
		{server.Halt, server.Resurrect},
		{server.Pause, server.Resume},
		{server.Halt, server.Resurrect},
	}
	before := writes(t)
	for round, outage := range outages {
		value := fmt.Sprint(round + 1)
		if err := outage.begin(); err != nil {
			t.Fatal(err)
		}
		for i := range templates {
			edit(t, cell, configMapRef(ns, name(i)), func(cm *corev1.ConfigMap) { cm.Data["k"] = value })
		}
		for i := range templates {
			delivered(t, "member1", ns, name(i), "k", value)
		}
		for i := range templates {
			until(t, "the Work reports the member as unreachable", cell, workRef("member2", "ConfigMap", ns, name(i)), func(w *workv1alpha1.Work) bool {
				return meta.IsStatusConditionFalse(w.Status.Conditions, names.WorkApplied)
			})
		}
		if err := outage.end(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the member answers again", func(ctx context.Context) (bool, error) {
			err := server.Check(ctx)
			return err == nil, err
		})
		for i := range templates {
			delivered(t, "member2", ns, name(i), "k", value)
			until(t, "the Work is applied", cell, workRef("member2", "ConfigMap", ns, name(i)), func(w *workv1alpha1.Work) bool {
				return meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied)
			})
		}
	}
	settle(t)

	// A change costs 3 writes; an outage the statuses of Work and binding and an event on Work, binding and template;
	// its end as much. A message that changes while the outage is detected may double that, but not more.
	const most = 3 + 2*2*(2+3)
	done := increase(before, writes(t))
	if each := total(done) / float64(templates*len(outages)); each > most {
		t.Errorf("a change during an outage costs %.1f writes, want at most %d: %v", each, most, perObject(done, templates*len(outages)))
	}
	var copies corev1.ConfigMapList
	if err := members["member2"].List(t.Context(), &copies, ctrlclient.InNamespace(ns), ctrlclient.MatchingLabels{names.ManagedLabel: names.ManagedValue}); err != nil {
		t.Fatal(err)
	}
	if len(copies.Items) != templates {
		t.Errorf("the member has %d copies, want %d", len(copies.Items), templates)
	}
	for i := range copies.Items {
		if cm := &copies.Items[i]; cm.UID != identities[cm.Name] {
			t.Errorf("%s was recreated: %s, then %s", cm.Name, identities[cm.Name], cm.UID)
		}
	}
	var works workv1alpha1.WorkList
	if err := cell.List(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	mine := 0
	for i := range works.Items {
		if works.Items[i].Annotations[names.ResourceBindingNamespaceAnnotation] == ns {
			mine++
		}
	}
	if mine != templates*len(members) {
		t.Errorf("there are %d Works, want %d", mine, templates*len(members))
	}
}
