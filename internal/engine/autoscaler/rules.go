package autoscaler

import (
	rbacv1 "k8s.io/api/rbac/v1"

	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// Rules returns the permissions that the autoscaler needs through the gateway. A target is scaled by its scale alone.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{autoscalingv1alpha1.GroupVersion.Group}, Resources: []string{"federatedhpas"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{autoscalingv1alpha1.GroupVersion.Group}, Resources: []string{"federatedhpas/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{metricsv1alpha1.GroupVersion.Group}, Resources: []string{"workloadmetrics"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"get", "update"}},
	}
}
