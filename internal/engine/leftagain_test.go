package engine_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/kubebin"
)

// Works are made anew after a move, and a cluster that does not answer keeps its copy with the mark of the former one. If the cluster is left before it answers, that copy
// is removed, or released, as one that has the mark of its Work. What is not ours stays.
func TestLeftBeforeItAnswers(t *testing.T) {
	ns := namespace(t)
	removed := []string{"left", "deleted", "suspended", "twice"}
	all := append([]string{"preserved", "theirs", "another", "moved"}, removed...)
	change := func(name string, f func(*policyv1alpha1.PropagationSpec)) {
		p := policy(ns, name, nil)
		edit(t, cell, p, func(p *policyv1alpha1.PropagationPolicy) { f(&p.Spec) })
	}
	for _, name := range all {
		p := policy(ns, name, []string{"ConfigMap"})
		p.Spec.ResourceSelectors[0].Name = name
		create(t, p, configMap(ns, name, map[string]string{"owner": "federation"}))
	}
	for _, name := range all {
		delivered(t, "member2", ns, name, "owner", "federation")
		until(t, "the binding reports both members", cell, bindingRef(ns, name+"-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return len(b.Status.AggregatedStatus) == 2 })
	}

	// The objects move, and somebody replaces two of the copies. Then member2 does not answer.
	stopEngine()
	running := false
	start := func() { running, stopEngine = true, startEngine(context.Background()) }
	stop := func() { running = false; stopEngine() }
	defer func() {
		if !running {
			start()
		}
	}()
	removeWorks(t, ns)
	for name, labels := range map[string]map[string]string{
		"theirs":  nil,
		"another": {names.ManagedLabel: names.ManagedValue, names.WorkPermanentIDLabel: "another", names.ResourceBindingPermanentIDLabel: "another"},
	} {
		if err := members["member2"].Delete(t.Context(), configMapRef(ns, name)); err != nil {
			t.Fatal(err)
		}
		cm := configMap(ns, name, map[string]string{"owner": "member"})
		cm.Labels = labels
		createIn(t, members["member2"], cm)
	}
	change("suspended", func(spec *policyv1alpha1.PropagationSpec) {
		spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
	})
	change("preserved", func(spec *policyv1alpha1.PropagationSpec) { spec.PreserveResourcesOnDeletion = ptr.To(true) })
	server, err := federation.Process("member2/" + kubebin.KubeAPIServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Halt(); err != nil {
		t.Fatal(err)
	}
	resurrected := false
	resurrect := func() {
		if !resurrected {
			resurrected = true
			if err := server.Resurrect(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(resurrect)
	start()
	for _, name := range all {
		work := workRef("member2", "ConfigMap", ns, name)
		until(t, "member2 gets a Work again", cell, work, func(w *workv1alpha1.Work) bool {
			return ptr.Deref(w.Spec.SuspendDispatching, false) == (name == "suspended") && ptr.Deref(w.Spec.PreserveResourcesOnDeletion, false) == (name == "preserved")
		})
	}

	// It is left before it got any of them.
	for _, name := range all {
		if name == "deleted" {
			if err := cell.Delete(t.Context(), configMapRef(ns, name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		change(name, inMembers("member1"))
	}
	for _, name := range all {
		until(t, "its Work is deleted", cell, workRef("member2", "ConfigMap", ns, name), func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil })
	}

	// The engine stops before it has removed anything. One object moves again, without its Work, and the Work of another is marked as moved: its copy is another cell's.
	stop()
	edit(t, cell, workRef("member2", "ConfigMap", ns, "twice"), func(w *workv1alpha1.Work) { w.Finalizers = nil })
	moved := workRef("member2", "ConfigMap", ns, "moved")
	edit(t, cell, moved, func(w *workv1alpha1.Work) { w.Labels[names.RebalanceStatusLabel] = names.RebalanceMigrated })
	t.Cleanup(func() {
		ctx := context.Background()
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(moved), moved); err != nil {
			t.Error(err)
			return
		}
		moved.Finalizers = nil
		if err := cell.Update(ctx, moved); err != nil {
			t.Error(err)
		}
	})
	start()
	resurrect()

	for _, name := range removed {
		untilGone(t, "the copy of "+name+" is removed from member2", members["member2"], configMapRef(ns, name))
	}
	for _, name := range all {
		if name != "moved" {
			untilGone(t, "the Work of "+name+" is gone", cell, workRef("member2", "ConfigMap", ns, name))
		}
	}
	stays := func(name, owner string) *corev1.ConfigMap {
		t.Helper()
		found := delivered(t, "member2", ns, name, "owner", owner)
		if found.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", name)
		}
		return found
	}
	stays("theirs", "member")
	stays("another", "member")
	if found := stays("moved", "federation"); found.Labels[names.ResourceBindingPermanentIDLabel] == "" {
		t.Errorf("what belongs to another cell was released: %v", found.Labels)
	}
	if found := stays("preserved", "federation"); len(found.Labels) > 0 || len(found.Annotations) > 0 {
		t.Errorf("what is preserved carries %v and %v", found.Labels, found.Annotations)
	}
	delivered(t, "member1", ns, "left", "owner", "federation")
}
