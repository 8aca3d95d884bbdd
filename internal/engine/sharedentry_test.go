package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/testenv"
)

// E7: a cluster-scoped object that is open in its member is not written to, and not deleted. The hub's engine reports it as cells do: by its Work, its binding, events
// and the metric.
func TestOpenClusterScopedEntry(t *testing.T) {
	t.Parallel()
	const name, bindingName, cluster = "open-class", "open-class-priorityclass", "member1"
	class := func() *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	selectors := []policyv1alpha1.ResourceSelector{{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass", Name: name}}
	placed := metav1.ObjectMeta{Name: name, Labels: map[string]string{names.ClusterPropagationPolicyPermanentIDLabel: name}}
	cpp := &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: placed, Spec: policyv1alpha1.PropagationSpec{ResourceSelectors: selectors}}
	inMembers(cluster)(&cpp.Spec)
	template := class()
	template.Value, template.Description = 7, "1"
	createIn(t, hub, cpp, template)
	until(t, "it is there", members[cluster], class(), anything[*schedulingv1.PriorityClass])

	soon := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	open(t, cluster, class(), func(c *schedulingv1.PriorityClass) { c.Description = "repaired" },
		names.EntryUntilAnnotation, soon, names.EntryByAnnotation, "alice", names.EntryReasonAnnotation, "repair")
	before := until(t, "it is open", members[cluster], class(), anything[*schedulingv1.PriorityClass])
	words := "PriorityClass " + name + " in cluster " + cluster + " is open until " + soon + ", by alice: repair"
	told := func(conditions []metav1.Condition) bool {
		c := meta.FindStatusCondition(conditions, names.EntryOpen)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == names.ReasonEntryOpen && strings.HasPrefix(c.Message, words)
	}
	held := func(what string, asks func(*workv1alpha1.Work) bool) {
		t.Helper()
		until(t, what, hub, workRef(cluster, "PriorityClass", "", name), func(w *workv1alpha1.Work) bool {
			applied := meta.FindStatusCondition(w.Status.Conditions, names.WorkApplied)
			return told(w.Status.Conditions) && applied != nil && applied.Status == metav1.ConditionFalse && applied.Reason == names.ReasonEntryOpen && asks(w)
		})
		now := until(t, "it is still there", members[cluster], class(), anything[*schedulingv1.PriorityClass])
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("it was written to (-before +now):\n%s", diff)
		}
	}
	has := func(text string) func(*workv1alpha1.Work) bool {
		return func(w *workv1alpha1.Work) bool {
			return len(w.Spec.Workload.Manifests) == 1 && strings.Contains(string(w.Spec.Workload.Manifests[0].Raw), text)
		}
	}
	held("the engine holds back", anything[*workv1alpha1.Work])
	bindingRef := func() *workv1alpha2.ClusterResourceBinding {
		return &workv1alpha2.ClusterResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: bindingName}}
	}
	until(t, "the binding tells", hub, bindingRef(), func(b *workv1alpha2.ClusterResourceBinding) bool {
		return told(b.Status.Conditions) && meta.IsStatusConditionFalse(b.Status.Conditions, names.BindingFullyApplied)
	})
	for _, about := range []string{name, bindingName} {
		if e := event(t, hub, metav1.NamespaceDefault, about, names.EventEntryOpen); e.Message != words {
			t.Errorf("the event about %s says %q, want %q", about, e.Message, words)
		}
	}
	openMetric := func() *float64 {
		return metric(t, "cellplane_open_entry_until_timestamp_seconds", cluster, "PriorityClass", "")
	}
	if got := openMetric(); got == nil || *got <= float64(time.Now().Unix()) {
		t.Errorf("the metric is %v", got)
	}

	// Whatever changes, it is not written to.
	edit(t, hub, class(), func(c *schedulingv1.PriorityClass) { c.Description = "2" })
	held("the engine holds back a change of the template", has(`"description":"2"`))
	createIn(t, hub, &policyv1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1alpha1.OverrideSpec{
		ResourceSelectors: selectors, OverrideRules: labelOverride("", "", "PriorityClass", name, "x").Spec.OverrideRules,
	}})
	held("the engine holds back an override", has(`"over":"x"`))
	edit(t, hub, cpp, func(p *policyv1alpha1.ClusterPropagationPolicy) {
		p.Spec.ConflictResolution = policyv1alpha1.ConflictOverwrite
	})
	held("the engine holds back another conflictResolution", has(`"`+names.ConflictResolutionAnnotation+`":"overwrite"`))
	if err := hub.Delete(t.Context(), class()); err != nil {
		t.Fatal(err)
	}
	held("the engine holds back the deletion", func(w *workv1alpha1.Work) bool { return w.DeletionTimestamp != nil })

	closeEntry(t, cluster, class())
	untilGone(t, "it is deleted", members[cluster], class())
	untilGone(t, "its binding is gone", hub, bindingRef())
	testenv.Eventually(t, "the metric is gone", func(context.Context) (bool, error) { return openMetric() == nil, nil })
}
