package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/execution"
	"github.com/cellplane/cellplane/internal/testenv"
)

// open takes an object of a member out of the federation's hands, as `kubectl annotate` does.
func open[T ctrlclient.Object](t *testing.T, member string, obj T, change func(T), also ...string) {
	t.Helper()
	edit(t, members[member], obj, func(obj T) {
		annotations := obj.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[names.EntryAnnotation] = ""
		for i := 0; i+1 < len(also); i += 2 {
			annotations[also[i]] = also[i+1]
		}
		obj.SetAnnotations(annotations)
		if change != nil {
			change(obj)
		}
	})
}

// closeEntry gives an object back to the federation.
func closeEntry[T ctrlclient.Object](t *testing.T, member string, obj T) {
	t.Helper()
	edit(t, members[member], obj, func(obj T) {
		annotations := obj.GetAnnotations()
		delete(annotations, names.EntryAnnotation)
		obj.SetAnnotations(annotations)
	})
}

// heldBack waits until the engine has tried to write what a Work asks for, and has not.
func heldBack(t *testing.T, work *workv1alpha1.Work, ok func(*workv1alpha1.Work) bool) {
	t.Helper()
	until(t, "the engine holds back", cell, work, func(w *workv1alpha1.Work) bool {
		applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
		return applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == names.ReasonEntryOpen &&
			meta.IsStatusConditionTrue(w.Status.Conditions, names.EntryOpen) && ok(w)
	})
}

// E1: an object that is open in its member is not written to, and this is reported. Its real replicas are counted.
func TestOpenEntry(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	create(t, policy(ns, "all", []string{"Deployment"}), deployment(ns, "web", 2))
	for _, cluster := range []string{"member1", "member2"} {
		until(t, "it runs in "+cluster, members[cluster], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == 2 })
	}
	until(t, "it is applied", cell, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied)
	})
	if got := openMetric(t, "member1", ns); got != nil {
		t.Errorf("the metric is %v before", *got)
	}

	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	open(t, "member1", deploymentRef(ns, "web"), func(d *appsv1.Deployment) {
		d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image = ptr.To[int32](4), "registry.example/app:repaired"
	}, names.EntryUntilAnnotation, soon, names.EntryByAnnotation, "alice", names.EntryReasonAnnotation, "repair")
	want := "Deployment " + ns + "/web in cluster member1 is open until " + soon + ", by alice: repair"
	told := func(conditions []metav1.Condition, reason string, words string) bool {
		c := meta.FindStatusCondition(conditions, names.EntryOpen)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason && strings.Contains(c.Message, words)
	}
	heldBack(t, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool { return told(w.Status.Conditions, names.ReasonEntryOpen, want) })
	until(t, "the binding tells", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return told(b.Status.Conditions, names.ReasonEntryOpen, want) && meta.IsStatusConditionFalse(b.Status.Conditions, names.BindingFullyApplied)
	})
	until(t, "the template tells and counts its real replicas", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Status.ReadyReplicas == 6 && slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == names.EntryOpen && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, want)
		})
	})
	for _, name := range []string{"web", "web-deployment"} {
		event(t, cell, ns, name, names.EventEntryOpen)
	}
	if got := openMetric(t, "member1", ns); got == nil || *got <= float64(time.Now().Unix()) {
		t.Errorf("the metric is %v", got)
	}

	// A change of the template reaches the other member only.
	edit(t, cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	until(t, "member2 has it", members["member2"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	heldBack(t, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), "registry.example/app:2")
	})
	d := until(t, "it is there", members["member1"], deploymentRef(ns, "web"), anything[*appsv1.Deployment])
	if image := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != 4 || image != "registry.example/app:repaired" {
		t.Errorf("member1 has %d replicas of %s", *d.Spec.Replicas, image)
	}

	// When its time is over it stays open, and that is said.
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	open(t, "member1", deploymentRef(ns, "web"), nil, names.EntryUntilAnnotation, past)
	heldBack(t, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return told(w.Status.Conditions, names.ReasonEntryOverdue, "should have been closed at "+past)
	})
	event(t, cell, ns, "web", names.EventEntryOverdue)

	closeEntry(t, "member1", deploymentRef(ns, "web"))
	until(t, "it is the federation's again", members["member1"], deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == 2 && d.Spec.Template.Spec.Containers[0].Image == "registry.example/app:2"
	})
	until(t, "the Work does not tell any more", cell, workRef("member1", "Deployment", ns, "web"), func(w *workv1alpha1.Work) bool {
		return meta.FindStatusCondition(w.Status.Conditions, names.EntryOpen) == nil && meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied)
	})
	until(t, "nor does the binding", cell, bindingRef(ns, "web-deployment"), func(b *workv1alpha2.ResourceBinding) bool {
		return meta.FindStatusCondition(b.Status.Conditions, names.EntryOpen) == nil
	})
	until(t, "nor does the template", cell, deploymentRef(ns, "web"), func(d *appsv1.Deployment) bool {
		return !slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == names.EntryOpen })
	})
	event(t, cell, ns, "web", names.EventEntryClosed)
	if got := openMetric(t, "member1", ns); got != nil {
		t.Errorf("the metric is %v after", *got)
	}
}

// openMetric returns the value of the metric about open Deployments of a namespace, nil if there is none.
func openMetric(t *testing.T, cluster, ns string) *float64 {
	t.Helper()
	return metric(t, "cellplane_open_entry_until_timestamp_seconds", cluster, "Deployment", ns)
}

// metric returns the value of a metric about the objects of a kind in a namespace, nil if there is none.
func metric(t *testing.T, metric, cluster, kind, ns string) *float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(execution.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"member_cluster": cluster, "kind": kind, "namespace": ns}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range series.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if family.GetName() == metric && cmp.Equal(labels, want) {
				return ptr.To(series.GetGauge().GetValue())
			}
		}
	}
	return nil
}

// E2: none of the ways by which the engine writes to an object takes an open one. What is outstanding is done when it is closed.
func TestNothingWritesToAnOpenEntry(t *testing.T) {
	t.Parallel()
	const cluster = "member1"
	deleted := func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil }
	remove := func(t *testing.T, ns string) {
		t.Helper()
		if err := cell.Delete(t.Context(), configMapRef(ns, "cm")); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(t *testing.T, ns string) {
		t.Helper()
		untilGone(t, "it is deleted", members[cluster], configMapRef(ns, "cm"))
	}
	becomes := func(ok func(*corev1.ConfigMap) bool) func(*testing.T, string) {
		return func(t *testing.T, ns string) {
			t.Helper()
			until(t, "it is as the federation wants it", members[cluster], configMapRef(ns, "cm"), ok)
		}
	}
	set := func(t *testing.T, ns, value string) {
		t.Helper()
		edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = value })
	}
	asks := func(words string) func(*workv1alpha1.Work) bool {
		return func(w *workv1alpha1.Work) bool {
			return len(w.Spec.Workload.Manifests) == 1 && strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), words)
		}
	}
	dispatched := func(w *workv1alpha1.Work) bool {
		return !ptr.Deref(w.Spec.SuspendDispatching, false) && asks(`"k":"2"`)(w)
	}
	// unclaimed deletes the policy, and then changes the template.
	unclaimed := func(t *testing.T, ns string) {
		t.Helper()
		if err := cell.Delete(t.Context(), policy(ns, "p", nil)); err != nil {
			t.Fatal(err)
		}
		until(t, "the binding is unclaimed", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
			return b.Labels[names.PropagationPolicyPermanentIDLabel] == ""
		})
		set(t, ns, "2")
	}
	// held changes the policy such that the Work is suspended, then the template, and then changes the policy back.
	held := func(suspend, resume func(*policyv1alpha1.PropagationPolicy)) func(*testing.T, string) {
		return func(t *testing.T, ns string) {
			t.Helper()
			work := workRef(cluster, "ConfigMap", ns, "cm")
			edit(t, cell, policy(ns, "p", nil), suspend)
			until(t, "the Work is suspended", cell, work, func(w *workv1alpha1.Work) bool { return ptr.Deref(w.Spec.SuspendDispatching, false) })
			set(t, ns, "2")
			until(t, "the Work has the change", cell, work, asks(`"k":"2"`))
			edit(t, cell, policy(ns, "p", nil), resume)
		}
	}
	two := becomes(func(cm *corev1.ConfigMap) bool { return cm.Data["k"] == "2" })
	for name, tt := range map[string]struct {
		policy  func(*policyv1alpha1.PropagationSpec)
		act     func(t *testing.T, ns string)
		written func(*workv1alpha1.Work) bool // the Work asks for it
		after   func(t *testing.T, ns string)
	}{
		"update": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				set(t, ns, "2")
			},
			written: asks(`"k":"2"`), after: two,
		},
		"deletion of the policy": {act: unclaimed, written: asks(`"k":"2"`), after: two},
		"deletion of a policy whose copies stay": {
			policy: func(spec *policyv1alpha1.PropagationSpec) { spec.PreserveResourcesOnDeletion = ptr.To(true) },
			act:    unclaimed, written: asks(`"k":"2"`), after: two,
		},
		"another conflictResolution": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				edit(t, cell, policy(ns, "p", nil), func(p *policyv1alpha1.PropagationPolicy) {
					p.Spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
				})
			},
			written: asks(`"` + names.ConflictResolutionAnnotation + `":"overwrite"`),
			after: becomes(func(cm *corev1.ConfigMap) bool {
				return cm.Annotations[names.ConflictResolutionAnnotation] == "overwrite"
			}),
		},
		"end of a suspension": {
			act: held(func(p *policyv1alpha1.PropagationPolicy) {
				p.Spec.Suspension = &policyv1alpha1.Suspension{Dispatching: ptr.To(true)}
			}, func(p *policyv1alpha1.PropagationPolicy) { p.Spec.Suspension = nil }),
			written: dispatched, after: two,
		},
		"end of report only": {
			act: held(func(p *policyv1alpha1.PropagationPolicy) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, names.DispatchingAnnotation, names.DispatchingReportOnly)
			}, func(p *policyv1alpha1.PropagationPolicy) { delete(p.Annotations, names.DispatchingAnnotation) }),
			written: dispatched, after: two,
		},
		"rebalancing": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				set(t, ns, "2")
				scheduled := until(t, "it was scheduled", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool { return b.Status.LastScheduledTime != nil })
				testenv.Eventually(t, "a second has passed", func(context.Context) (bool, error) { // the resolution of the times
					return time.Now().Truncate(time.Second).After(scheduled.Status.LastScheduledTime.Time), nil
				})
				edit(t, cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) { b.Spec.RescheduleTriggeredAt = ptr.To(metav1.Now()) })
				until(t, "it is scheduled again", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
					return !b.Status.LastScheduledTime.Before(b.Spec.RescheduleTriggeredAt)
				})
			},
			written: asks(`"k":"2"`), after: two,
		},
		"leaving the cluster and coming back": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				edit(t, cell, policy(ns, "p", nil), func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
				until(t, "the Work is being deleted", cell, workRef(cluster, "ConfigMap", ns, "cm"), deleted)
				edit(t, cell, policy(ns, "p", nil), func(p *policyv1alpha1.PropagationPolicy) { inMembers(cluster)(&p.Spec) })
				until(t, "it is placed there again", cell, bindingRef(ns, "cm-configmap"), func(b *workv1alpha2.ResourceBinding) bool {
					return len(b.Spec.Clusters) == 1 && b.Spec.Clusters[0].Name == cluster
				})
				barrier(t, ns)
			},
			written: deleted,
			after: func(t *testing.T, ns string) {
				t.Helper()
				until(t, "the cluster gets it anew", cell, workRef(cluster, "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
					return w.DeletionTimestamp == nil && meta.IsStatusConditionTrue(w.Status.Conditions, names.WorkApplied)
				})
				delivered(t, cluster, ns, "cm", "k", "1")
			},
		},
		"removal of a field": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"other": "1"} })
			},
			written: func(w *workv1alpha1.Work) bool {
				return !strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), `"k":"1"`)
			},
			after: becomes(func(cm *corev1.ConfigMap) bool { return len(cm.Data) == 1 && cm.Data["other"] == "1" }),
		},
		"override": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				create(t, labelOverride(ns, "o", "ConfigMap", "cm", "x"))
			},
			written: func(w *workv1alpha1.Work) bool {
				return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), `"over":"x"`)
			},
			after: becomes(func(cm *corev1.ConfigMap) bool { return cm.Labels["over"] == "x" }),
		},
		"deletion of the template": {act: remove, written: deleted, after: gone},
		"another placement": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				edit(t, cell, policy(ns, "p", nil), func(p *policyv1alpha1.PropagationPolicy) { inMembers("member2")(&p.Spec) })
			},
			written: deleted, after: gone,
		},
		"deletion of a template whose copies stay": {
			policy: func(spec *policyv1alpha1.PropagationSpec) { spec.PreserveResourcesOnDeletion = ptr.To(true) },
			act:    remove, written: deleted,
			after: becomes(func(cm *corev1.ConfigMap) bool { return len(cm.Labels) == 0 && cm.Data["k"] == "1" }),
		},
		"deletion of the Work": {
			act: func(t *testing.T, ns string) {
				t.Helper()
				if err := cell.Delete(t.Context(), workRef(cluster, "ConfigMap", ns, "cm")); err != nil {
					t.Fatal(err)
				}
			},
			written: deleted,
			after: becomes(func(cm *corev1.ConfigMap) bool {
				return cm.Annotations[names.EntryAnnotation] == "" && cm.Data["k"] == "1"
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			p := policy(ns, "p", []string{"ConfigMap"}, inMembers(cluster))
			if tt.policy != nil {
				tt.policy(&p.Spec)
			}
			create(t, p, configMap(ns, "cm", map[string]string{"k": "1", "other": "1"}))
			delivered(t, cluster, ns, "cm", "k", "1")
			open(t, cluster, configMapRef(ns, "cm"), nil)
			until(t, "the engine has seen it", cell, workRef(cluster, "ConfigMap", ns, "cm"), func(w *workv1alpha1.Work) bool {
				return meta.IsStatusConditionTrue(w.Status.Conditions, names.EntryOpen)
			})
			before := until(t, "it is there", members[cluster], configMapRef(ns, "cm"), anything[*corev1.ConfigMap])
			tt.act(t, ns)
			heldBack(t, workRef(cluster, "ConfigMap", ns, "cm"), tt.written)
			now := until(t, "it is still there", members[cluster], configMapRef(ns, "cm"), anything[*corev1.ConfigMap])
			if diff := cmp.Diff(before, now); diff != "" {
				t.Errorf("it was written to (-before +now):\n%s", diff)
			}
			closeEntry(t, cluster, configMapRef(ns, "cm"))
			tt.after(t, ns)
		})
	}
	t.Run("taking over", func(t *testing.T) {
		t.Parallel()
		ns := namespace(t)
		theirs := configMap(ns, "cm", map[string]string{"k": "theirs"})
		theirs.Annotations = map[string]string{names.EntryAnnotation: ""}
		createIn(t, members[cluster], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, theirs)
		create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers(cluster), func(spec *policyv1alpha1.PropagationSpec) {
			spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
		}), configMap(ns, "cm", map[string]string{"k": "1"}))
		heldBack(t, workRef(cluster, "ConfigMap", ns, "cm"), anything[*workv1alpha1.Work])
		now := until(t, "it is still there", members[cluster], configMapRef(ns, "cm"), anything[*corev1.ConfigMap])
		if now.ResourceVersion != theirs.ResourceVersion {
			t.Errorf("it was written to: %+v", now)
		}
	})
	t.Run("a template is not open", func(t *testing.T) {
		t.Parallel()
		ns := namespace(t)
		cm := configMap(ns, "cm", map[string]string{"k": "1"})
		cm.Annotations = map[string]string{names.EntryAnnotation: "", names.ReleaseAnnotation: "*"}
		create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers(cluster)), cm)
		delivered(t, cluster, ns, "cm", "k", "1")
		edit(t, cell, configMapRef(ns, "cm"), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
		delivered(t, cluster, ns, "cm", "k", "2")
	})
}

// E3: what people do in a member while no engine runs is not overwritten by the first write of the next one.
func TestEntryOpenedWhileAway(t *testing.T) {
	ns := namespace(t)
	create(t, autoEntry(policy(ns, "all", []string{"ConfigMap"}, inMembers("member1")), "1h", ""))
	for _, name := range []string{"changed", "edited", "deleted", "written"} {
		create(t, configMap(ns, name, map[string]string{"k": "1"}))
	}
	for _, name := range []string{"changed", "edited", "deleted", "written"} {
		delivered(t, "member1", ns, name, "k", "1")
	}
	stopEngine()
	before := map[string]string{}
	past := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	for _, name := range []string{"changed", "edited", "deleted"} {
		cm := configMapRef(ns, name)
		open(t, "member1", cm, func(cm *corev1.ConfigMap) { cm.Data["k"] = "repaired" }, names.EntryUntilAnnotation, past) // its time is over before an engine sees it
		before[name] = cm.ResourceVersion
	}
	writeAs(t, "kubectl-edit", ns, "written", "repaired") // without an annotation
	for _, name := range []string{"edited", "written"} {
		edit(t, cell, configMapRef(ns, name), func(cm *corev1.ConfigMap) { cm.Data["k"] = "2" })
	}
	if err := cell.Delete(t.Context(), configMapRef(ns, "deleted")); err != nil {
		t.Fatal(err)
	}
	stopEngine = startEngine(context.Background())
	heldBack(t, workRef("member1", "ConfigMap", ns, "changed"), func(w *workv1alpha1.Work) bool {
		return meta.FindStatusCondition(w.Status.Conditions, names.EntryOpen).Reason == names.ReasonEntryOverdue
	})
	heldBack(t, workRef("member1", "ConfigMap", ns, "edited"), func(w *workv1alpha1.Work) bool {
		return strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), `"k":"2"`)
	})
	heldBack(t, workRef("member1", "ConfigMap", ns, "deleted"), func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil })
	for name, version := range before {
		cm := until(t, "it is there", members["member1"], configMapRef(ns, name), anything[*corev1.ConfigMap])
		if cm.Data["k"] != "repaired" || cm.ResourceVersion != version {
			t.Errorf("%s has k=%s and version %s, want repaired and %s", name, cm.Data["k"], cm.ResourceVersion, version)
		}
	}
	openedBy(t, ns, "written", "kubectl-edit", "repaired")
	for name := range before {
		closeEntry(t, "member1", configMapRef(ns, name))
	}
	delivered(t, "member1", ns, "changed", "k", "1")
	delivered(t, "member1", ns, "edited", "k", "2")
	closeEntry(t, "member1", configMapRef(ns, "written"))
	delivered(t, "member1", ns, "written", "k", "2")
	untilGone(t, "the deletion was not forgotten", members["member1"], configMapRef(ns, "deleted"))
}
