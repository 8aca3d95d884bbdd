package dependencies_test

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

// testAutoscalerElsewhere marks the target of an autoscaler that is in another cell. The mark goes with the autoscaler, also if its engine does not see that.
func (w *world) testAutoscalerElsewhere(here, there string) {
	w.Helper()
	for _, client := range w.cells {
		w.create(client, &policyv1alpha1.PropagationPolicy{ObjectMeta: w.meta("autoscalers"), Spec: policyv1alpha1.PropagationSpec{
			ResourceSelectors: []policyv1alpha1.ResourceSelector{{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}},
		}})
	}
	scaled, scaler := w.nameIn(there, "scaled"), w.nameIn(here, "scaler")
	autoscaler := func() *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: w.meta(scaler), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 5, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: scaled},
		}}
	}
	w.create(w.gateway, w.deployment(scaled), autoscaler())
	template := w.deployment(scaled)
	w.until("the target is marked", w.cells[there], template, func() bool {
		return template.Labels[names.RetainReplicasLabel] == "true" && template.Annotations[names.AutoscaledByAnnotation] == scaler
	})
	w.stop[here]()
	w.stop[there]()
	w.check(w.gateway.Delete(w.Context(), autoscaler()))
	w.start[there]()
	w.start[here]()
	w.until("the mark is gone", w.cells[there], template, func() bool {
		return template.Labels[names.RetainReplicasLabel] == "" && template.Annotations[names.AutoscaledByAnnotation] == ""
	})
}
