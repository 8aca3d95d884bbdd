package scheduling_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// recordOf returns the record of a group on the hub, nil if there is none.
func (w *world) recordOf(ctx context.Context, group string) (*cellplanev1alpha1.WorkloadGroup, error) {
	var records cellplanev1alpha1.WorkloadGroupList
	if err := hub.List(ctx, &records); err != nil {
		return nil, err
	}
	for i := range records.Items {
		if spec := &records.Items[i].Spec; spec.Namespace == w.ns && spec.Group == group {
			return &records.Items[i], nil
		}
	}
	return nil, nil
}

// editRecord changes the record of a group as the engine of another cell does.
func (w *world) editRecord(group string, edit func(*cellplanev1alpha1.WorkloadGroupSpec)) {
	w.Helper()
	testenv.Eventually(w, "another cell writes the record of "+group, func(ctx context.Context) (bool, error) {
		record, err := w.recordOf(ctx, group)
		if err != nil || record == nil {
			return false, err
		}
		edit(&record.Spec)
		err = hub.Update(ctx, record)
		return err == nil, err
	})
}

// S21: workloads stay together and apart over all cells.
func TestWorkloadAffinityOverCells(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	labelled := func(key string) func(*appsv1.Deployment) { return func(d *appsv1.Deployment) { d.Labels[key] = "web" } }
	w.policy(aggregated, oneCluster, func(p *policyv1alpha1.PropagationPolicy) {
		p.Spec.Placement.WorkloadAffinity = &policyv1alpha1.WorkloadAffinity{
			Affinity:     &policyv1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "with"},
			AntiAffinity: &policyv1alpha1.WorkloadAntiAffinityTerm{GroupByLabelKey: "without"},
		}
	})
	placed := func(name string) string {
		b := w.until("it is placed", name, func(b *workv1alpha2.ResourceBinding) bool { return len(b.Spec.Clusters) == 1 })
		return b.Spec.Clusters[0].Name
	}
	w.create(w.deployment("first", 1, labelled("without")), w.deployment("friend", 1, labelled("with")))
	first, friend := placed("first"), placed("friend")

	// Another cell takes one cluster of the group that stays apart, and has a part of the group that stays together.
	all := []string{w.ns + "-a", w.ns + "-b", w.ns + "-c"}
	taken := all[(slices.Index(all, first)+1)%3]
	other := cellplanev1alpha1.GroupedWorkload{Cell: "cell-z", Binding: "other-deployment", Clusters: []string{taken}, Apart: true}
	w.editRecord("without=web", func(spec *cellplanev1alpha1.WorkloadGroupSpec) { spec.Workloads = append(spec.Workloads, other) })
	w.create(w.deployment("second", 1, labelled("without")))
	if second := placed("second"); second == first || second == taken {
		t.Errorf("the group is in %s, in another cell in %s, and then in %s", first, taken, second)
	}
	w.create(w.deployment("third", 1, labelled("without")))
	w.untilScheduled("third", names.ReasonNoClusterFit)
	record, err := w.recordOf(t.Context(), "without=web")
	if err != nil || record == nil || !slices.ContainsFunc(record.Spec.Workloads, func(g cellplanev1alpha1.GroupedWorkload) bool { return g.Cell == "cell-z" }) || len(record.Spec.Workloads) != 3 {
		t.Errorf("the record is %+v, %v", record, err)
	}
	if err := w.client.Delete(t.Context(), w.deployment("friend", 0)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a group without workloads has no record", func(ctx context.Context) (bool, error) {
		record, err := w.recordOf(ctx, "with=web")
		return err == nil && record == nil, fmt.Errorf("%w: %+v", err, record)
	})
	elsewhere := all[(slices.Index(all, friend)+1)%3]
	w.create(w.deployment("waits", 1, labelled("with")))
	placed("waits")
	w.editRecord("with=web", func(spec *cellplanev1alpha1.WorkloadGroupSpec) {
		spec.Workloads = append(spec.Workloads, cellplanev1alpha1.GroupedWorkload{Cell: "cell-z", Binding: "other-deployment", Clusters: []string{elsewhere}, Together: true})
	})
	if err := w.client.Delete(t.Context(), w.deployment("waits", 0)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the engine has noticed the deletion", func(ctx context.Context) (bool, error) {
		record, err := w.recordOf(ctx, "with=web")
		return err == nil && record != nil && len(record.Spec.Workloads) == 1, fmt.Errorf("%w: %+v", err, record)
	})
	w.create(w.deployment("follows", 1, labelled("with")))
	if follows := placed("follows"); follows != elsewhere {
		t.Errorf("the group is in %s in another cell, here in %s", elsewhere, follows)
	}
}
