package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/testenv"
)

// writeAs changes data of a ConfigMap in member1 as a program does: people use kubectl.
func writeAs(t *testing.T, manager, ns, name, value string) {
	t.Helper()
	testenv.Eventually(t, manager+" can write", func(ctx context.Context) (bool, error) {
		cm := configMapRef(ns, name)
		if err := members["member1"].Get(ctx, ctrlclient.ObjectKeyFromObject(cm), cm); err != nil {
			return false, err
		}
		cm.Data["k"] = value
		err := members["member1"].Update(ctx, cm, ctrlclient.FieldOwner(manager))
		return err == nil, err
	})
}

// openedBy waits until the entry of a ConfigMap in member1 is open, and checks what it says.
func openedBy(t *testing.T, ns, name, manager, value string) *corev1.ConfigMap {
	t.Helper()
	cm := until(t, "the entry is open", members["member1"], configMapRef(ns, name), func(cm *corev1.ConfigMap) bool {
		_, open := entry.Of(cm.Annotations)
		return open
	})
	e, _ := entry.Of(cm.Annotations)
	if cm.Data["k"] != value || e.By != manager || !strings.Contains(e.Reason, manager+" wrote data.k at ") {
		t.Errorf("%s has k=%s and is open by %q because of %q", name, cm.Data["k"], e.By, e.Reason)
	}
	return cm
}

func autoEntry(p *policyv1alpha1.PropagationPolicy, lasting, expiry string) *policyv1alpha1.PropagationPolicy {
	p.Annotations = map[string]string{names.AutoEntryAnnotation: lasting}
	if expiry != "" {
		p.Annotations[names.EntryExpiryAnnotation] = expiry
	}
	return p
}

// E4: where the policy says so, the write of a person in a member opens the entry of the object, and the write of a controller does not. What people
// write is not overwritten before they close it, and then it is.
func TestEntryOpenedByAWrite(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, autoEntry(policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), "1h", ""))
	for _, name := range []string{"person", "controller"} {
		create(t, configMap(ns, name, map[string]string{"k": "1"}))
		delivered(t, "member1", ns, name, "k", "1")
	}

	// A controller is set back.
	writeAs(t, "kube-controller-manager", ns, "controller", "theirs")
	cm := delivered(t, "member1", ns, "controller", "k", "1")
	if _, open := entry.Of(cm.Annotations); open {
		t.Errorf("the write of a controller has opened an entry: %v", cm.Annotations)
	}

	// A person is not, also not by a change of the template.
	writeAs(t, "kubectl-edit", ns, "person", "repaired")
	openedBy(t, ns, "person", "kubectl-edit", "repaired")
	edit(t, cell, configMapRef(ns, "person"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	heldBack(t, workRef("member1", "ConfigMap", ns, "person"), func(w *workv1alpha1.Work) bool {
		return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), `"k":"2"`)
	})
	cm = openedBy(t, ns, "person", "kubectl-edit", "repaired")
	if e, _ := entry.Of(cm.Annotations); e.Until.Before(time.Now()) {
		t.Errorf("it is open until %v", e.Until)
	}
	told := event(t, cell, ns, "person", names.EventEntryOpen)
	if want := "by kubectl-edit: kubectl-edit wrote data.k"; !strings.Contains(told.Message, want) {
		t.Errorf("the event says %q, want %q", told.Message, want)
	}

	// Who closes it wants the federation's.
	closeEntry(t, "member1", configMapRef(ns, "person"))
	cm = delivered(t, "member1", ns, "person", "k", "2")
	if _, open := entry.Of(cm.Annotations); open {
		t.Errorf("it is open again: %v", cm.Annotations)
	}
	until(t, "the Work does not tell any more", cell, workRef("member1", "ConfigMap", ns, "person"), func(w *workv1alpha1.Work) bool {
		return meta.FindStatusCondition(w.Status.Conditions, names.EntryOpen) == nil && meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied)
	})
}

// E5: the defaults open nothing, and invalid settings are named.
func TestNoEntryOpenedByDefault(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{"default": "", "invalid": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			create(t, autoEntry(policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), setting, ""), configMap(ns, "cm", map[string]string{"k": "1"}))
			delivered(t, "member1", ns, "cm", "k", "1")
			writeAs(t, "kubectl-edit", ns, "cm", "theirs")
			delivered(t, "member1", ns, "cm", "k", "1")
			if name == "invalid" {
				told := event(t, cell, ns, "cm-configmap", names.EventSyncWorkFailed)
				if want := fmt.Sprintf("%s is %q and not a duration", names.AutoEntryAnnotation, setting); !strings.Contains(told.Message, want) {
					t.Errorf("the event says %q, want %q", told.Message, want)
				}
			}
		})
	}
}

// E6: where the policy says so, an entry ends with its time, and the object becomes what the federation wants. That is also so if it is to be deleted.
func TestEntryDiscardedInTime(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, autoEntry(policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), "2s", names.EntryExpiryDiscard))
	for _, name := range []string{"changed", "same", "deleted"} {
		create(t, configMap(ns, name, map[string]string{"k": "1"}))
		delivered(t, "member1", ns, name, "k", "1")
	}
	writeAs(t, "kubectl-edit", ns, "changed", "repaired")
	event(t, cell, ns, "changed", names.EventEntryOpen)
	soon := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	for _, name := range []string{"same", "deleted"} {
		open(t, "member1", configMapRef(ns, name), nil, names.EntryUntilAnnotation, soon)
	}
	if err := cell.Delete(t.Context(), configMapRef(ns, "deleted")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"changed", "same"} {
		until(t, "its entry is closed", members["member1"], configMapRef(ns, name), func(cm *corev1.ConfigMap) bool {
			_, open := entry.Of(cm.Annotations)
			return !open && cm.Data["k"] == "1"
		})
	}
	untilGone(t, "it is deleted", members["member1"], configMapRef(ns, "deleted"))
}
