package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/rollout/stages"
	"github.com/cellplane/cellplane/internal/testenv"
)

// staged returns a policy by which member2 is updated first, then member1 after a moment, then the others when they are approved.
func (w *workload) staged() *cellplanev1alpha1.RolloutPolicy {
	only := func(cluster string) *policyv1alpha1.ClusterAffinity {
		return &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster}}
	}
	return &cellplanev1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "staged"}, Spec: cellplanev1alpha1.RolloutPolicySpec{
		ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "apps/v1", Kind: "Deployment"}},
		Stages: []cellplanev1alpha1.RolloutStage{
			{Name: "first", Clusters: only("member2"), Soak: &metav1.Duration{Duration: time.Second}},
			{Name: "second", Clusters: only("member1")},
			{Name: "others", Approval: true, MaxClusters: ptr.To(intstr.FromString("50%"))},
		},
	}}
}

// remembers waits until the binding says what is remembered of the stages.
func (w *workload) remembers(what string, ok func(record stages.Record) bool) (record stages.Record) {
	w.t.Helper()
	w.annotated(what, names.RolloutStagesAnnotation, func(text string) bool {
		var err error
		record, err = stages.DecodeRecord(text)
		return err == nil && ok(record)
	})
	return record
}

// approve approves a stage, or the failures if the stage is empty.
func (w *workload) approve(update, stage string) {
	w.t.Helper()
	approval := stages.Approval{}.With(update, stage)
	text, err := approval.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.writeApproval(text)
}

func (w *workload) writeApproval(text string) {
	w.t.Helper()
	testenv.Eventually(w.t, "the approval is stored", func(ctx context.Context) (bool, error) {
		binding := w.binding()
		metav1.SetMetaDataAnnotation(&binding.ObjectMeta, names.RolloutApprovalAnnotation, text)
		err := cell.Update(ctx, binding)
		return err == nil, err
	})
}

// has requires that the copies in the members have a version each.
func (w *workload) has(versions map[string]int) {
	w.t.Helper()
	for name, version := range versions {
		d := w.ref()
		if err := members[name].Get(w.t.Context(), ctrlclient.ObjectKeyFromObject(d), d); err != nil {
			w.t.Fatal(err)
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; got != image(version) {
			w.t.Errorf("%s has %s, not %s", name, got, image(version))
		}
	}
}

// TestStages updates a workload stage by stage, and kills the engine while a stage waits for approval. It is scaled meanwhile.
func TestStages(t *testing.T) {
	for name, duplicated := range map[string]bool{"divided": false, "duplicated": true} {
		t.Run(name, func(t *testing.T) {
			kill := startEngine(t)
			w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(1))
			pods := int32(6)
			if duplicated {
				w.duplicate()
				pods = 18
				w.finished(1, pods)
			}
			w.create(w.staged())
			w.setImage(2)
			record := w.remembers("the last stage waits", func(r stages.Record) bool { return r.Waiting == "others" })
			w.has(map[string]int{"member1": 2, "member2": 2, "member3": 1})

			kill()
			w.writeApproval("others") // not what anybody reads: it approves nothing, and stops nothing
			w.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(9)) })
			startEngine(t)
			w.isScaled("member3", duplicated)
			w.has(map[string]int{"member1": 2, "member2": 2, "member3": 1})

			w.approve(record.Update, "others")
			w.finished(2, pods/2*3)
			w.remembers("nothing waits", func(r stages.Record) bool { return r.Waiting == "" })
		})
	}
}

// isScaled waits until a cluster that is not updated has its part of nine replicas.
func (w *workload) isScaled(name string, duplicated bool) {
	w.t.Helper()
	want := int32(3)
	if duplicated {
		want = 9
	}
	testenv.Eventually(w.t, "it is scaled, also where it is not updated", func(ctx context.Context) (bool, error) {
		d := w.ref()
		err := members[name].Get(ctx, ctrlclient.ObjectKeyFromObject(d), d)
		return err == nil && d.Status.AvailableReplicas == want, fmt.Errorf("%+v: %w", d.Status, err)
	})
}

// TestStagesOfDaemonSets updates a DaemonSet stage by stage: the planner does not know the kind.
func TestStagesOfDaemonSets(t *testing.T) {
	startEngine(t)
	w := newWorkload(t, 3, intstr.FromInt32(1), intstr.FromInt32(1))
	everywhere := w.divided("DaemonSet")
	everywhere.Name, everywhere.Spec.Placement = "everywhere", policyv1alpha1.Placement{}
	staged := w.staged()
	staged.Spec.ResourceSelectors[0].Kind = "DaemonSet"
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}},
			Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(0)), Containers: []corev1.Container{{Name: "c", Image: image(1)}}},
		},
	}}
	w.create(everywhere, staged, set)
	images := func(ctx context.Context) (got []string, err error) {
		for _, name := range []string{"member1", "member2", "member3"} {
			copied := &appsv1.DaemonSet{}
			if err := members[name].Get(ctx, ctrlclient.ObjectKeyFromObject(set), copied); err != nil {
				return nil, err
			}
			if copied.Status.ObservedGeneration == copied.Generation && copied.Status.NumberAvailable > 0 {
				got = append(got, copied.Spec.Template.Spec.Containers[0].Image)
			}
		}
		return got, nil
	}
	reaches := func(what string, versions ...int) {
		t.Helper()
		var want []string
		for _, version := range versions {
			want = append(want, image(version))
		}
		testenv.Eventually(t, what, func(ctx context.Context) (bool, error) {
			got, err := images(ctx)
			return slices.Equal(got, want), fmt.Errorf("the members have %v: %w", got, err)
		})
	}
	reaches("it is everywhere", 1, 1, 1)
	set.Spec.Template.Spec.Containers[0].Image = image(2)
	testenv.Eventually(t, "it can be changed", func(ctx context.Context) (bool, error) {
		stored := &appsv1.DaemonSet{}
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(set), stored); err != nil {
			return false, err
		}
		stored.Spec.Template = set.Spec.Template
		err := cell.Update(ctx, stored)
		return err == nil, err
	})
	testenv.Eventually(t, "the last stage waits", func(ctx context.Context) (bool, error) {
		binding := &workv1alpha2.ResourceBinding{}
		if err := cell.Get(ctx, ctrlclient.ObjectKey{Namespace: w.ns, Name: "agent-daemonset"}, binding); err != nil {
			return false, err
		}
		record, err := stages.DecodeRecord(binding.Annotations[names.RolloutStagesAnnotation])
		return err == nil && record.Waiting == "others", fmt.Errorf("the binding says %v", binding.Annotations)
	})
	reaches("the earlier stages are updated", 2, 2, 1)
}

// duplicate gives every member a complete copy.
func (w *workload) duplicate() {
	w.t.Helper()
	testenv.Eventually(w.t, "the policy can be changed", func(ctx context.Context) (bool, error) {
		p := w.divided("Deployment")
		if err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(p), p); err != nil {
			return false, err
		}
		p.Spec.Placement.ReplicaScheduling = &policyv1alpha1.ReplicaSchedulingStrategy{ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDuplicated}
		err := cell.Update(ctx, p)
		return err == nil, err
	})
}

// TestStageFails has an update fail in the cluster of the first stage, in each way: nothing goes on until the update is replaced.
func TestStageFails(t *testing.T) {
	startEngine(t)
	for name, test := range map[string]struct {
		failure *cellplanev1alpha1.RolloutFailure
		begin   func(*workload)
		version int // of the cluster, when the update has failed
	}{
		"the cluster refuses it": {nil, func(w *workload) {
			w.refuseVersion2()
			w.setImage(2)
		}, 1},
		"pods are unavailable for too long": {&cellplanev1alpha1.RolloutFailure{UnavailableFor: &metav1.Duration{Duration: 3 * time.Second}}, func(w *workload) {
			w.edit(neverRuns)
		}, 2},
		"the progress deadline passes": {nil, func(w *workload) {
			w.edit(func(d *appsv1.Deployment) {
				neverRuns(d)
				d.Spec.ProgressDeadlineSeconds = ptr.To[int32](minReadySeconds + 2)
			})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(1))
			policy := w.staged()
			policy.Spec.Failure = test.failure
			w.create(policy)
			test.begin(w)
			w.remembers("the update has failed", func(r stages.Record) bool { return slices.Equal(r.Failed, []string{"member2"}) })
			w.has(map[string]int{"member1": 1, "member2": test.version, "member3": 1})

			// A short limit is for the version that never runs: the next needs some time, too.
			policy.Spec.Failure = nil
			if err := w.api().Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			w.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Spec.NodeSelector, d.Spec.ProgressDeadlineSeconds = image(3), nil, nil
			})
			record := w.remembers("the last stage waits", func(r stages.Record) bool { return r.Waiting == "others" && len(r.Failed) == 0 })
			w.has(map[string]int{"member1": 3, "member2": 3, "member3": 1})
			w.approve(record.Update, "others")
			w.finished(3, 6)
		})
	}
}

// neverRuns makes version 2 one whose pods find no node.
func neverRuns(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Spec.NodeSelector = image(2), map[string]string{"example.com/nowhere": "true"}
}

// TestEntryInStage has an entry open in the cluster of the first stage: the update has not failed there, and goes on when the entry is closed.
func TestEntryInStage(t *testing.T) {
	for name, duplicated := range map[string]bool{"divided": false, "duplicated": true} {
		t.Run(name, func(t *testing.T) {
			startEngine(t)
			w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(1))
			if duplicated {
				w.duplicate()
				w.finished(1, 18)
			}
			policy := w.staged()
			policy.Spec.Failure = &cellplanev1alpha1.RolloutFailure{Action: cellplanev1alpha1.RolloutRollBack}
			w.create(policy)
			entry := func(patch string) {
				t.Helper()
				if err := members["member2"].Patch(t.Context(), w.ref(), ctrlclient.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
					t.Fatal(err)
				}
			}
			entry(`{"metadata":{"annotations":{"` + names.EntryAnnotation + `":"open"}}}`)
			w.setImage(2)
			if duplicated {
				w.heldBack("member2")
			} else {
				w.awaits("member2")
			}
			w.edit(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(9)) })
			w.isScaled("member3", duplicated)
			w.has(map[string]int{"member1": 1, "member2": 1, "member3": 1})

			entry(`{"metadata":{"annotations":{"` + names.EntryAnnotation + `":null}}}`)
			w.remembers("the last stage waits", func(r stages.Record) bool { return r.Waiting == "others" && len(r.Failed) == 0 })
			w.has(map[string]int{"member1": 2, "member2": 2, "member3": 1})
		})
	}
}

// TestRollBack has a failed update rolled back, with divided and with duplicated replicas.
func TestRollBack(t *testing.T) {
	startEngine(t)
	for name, duplicated := range map[string]bool{"divided": false, "duplicated": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorkload(t, 6, intstr.FromInt32(1), intstr.FromInt32(1))
			pods := int32(6)
			if duplicated {
				w.duplicate()
				pods = 18
				w.finished(1, pods)
			}
			policy := w.staged()
			policy.Spec.Stages = policy.Spec.Stages[:2]
			policy.Spec.Failure = &cellplanev1alpha1.RolloutFailure{Action: cellplanev1alpha1.RolloutRollBack}
			w.create(policy)
			w.refuseVersion2()
			w.setImage(2)
			testenv.Eventually(t, "the workload has its former pod template", func(ctx context.Context) (bool, error) {
				d := w.ref()
				err := cell.Get(ctx, ctrlclient.ObjectKeyFromObject(d), d)
				return d.Annotations[names.RolledBackToAnnotation] != "" && d.Spec.Template.Spec.Containers[0].Image == image(1), fmt.Errorf("%v %w", d.Annotations, err)
			})
			w.finished(1, pods)
			w.has(map[string]int{"member1": 1, "member2": 1, "member3": 1})
			w.setImage(3)
			w.finished(3, pods)
		})
	}
}

// refuseVersion2 has member2 refuse version 2.
func (w *workload) refuseVersion2() {
	w.t.Helper()
	testenv.Refuse(w.t, memberConfig(w.t, "member2"), testenv.Refusal{
		Operation: admissionregistrationv1.Update, Group: "apps", Resource: "deployments", Name: "web",
		Unless: "object.metadata.namespace != '" + w.ns + "' || object.spec.template.spec.containers[0].image != '" + image(2) + "'", Words: "version 2 is not welcome",
		Probe: func(ctx context.Context) error {
			d := w.ref()
			if err := members["member2"].Get(ctx, ctrlclient.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			d.Spec.Template.Spec.Containers[0].Image = image(2)
			return members["member2"].Update(ctx, d, ctrlclient.DryRunAll)
		},
	})
}

func memberConfig(t *testing.T, name string) *rest.Config {
	t.Helper()
	for _, member := range federation.Members {
		if member.Name() == name {
			config, err := member.AdminConfig()
			if err != nil {
				t.Fatal(err)
			}
			return config
		}
	}
	t.Fatalf("there is no member %s", name)
	return nil
}
