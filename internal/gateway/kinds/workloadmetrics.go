package kinds

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
)

// workloadMetrics is the group of what agents push. Only cluster-gateways have it.
var workloadMetrics = apidiscoveryv2.APIGroupDiscovery{
	ObjectMeta: metav1.ObjectMeta{Name: metricsv1alpha1.GroupName},
	Versions: []apidiscoveryv2.APIVersionDiscovery{{
		Version:   metricsv1alpha1.GroupVersion.Version,
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Resources: []apidiscoveryv2.APIResourceDiscovery{
			{
				Resource: "metricsreports", SingularResource: "metricsreport", ResponseKind: pushedKind("MetricsReport"),
				Scope: apidiscoveryv2.ScopeCluster, Verbs: []string{"create"},
			},
			{
				Resource: "workloadmetrics", SingularResource: "workloadmetrics", ShortNames: []string{"wm"}, ResponseKind: pushedKind("WorkloadMetrics"),
				Scope: apidiscoveryv2.ScopeNamespace, Verbs: []string{"get", "list", "watch"},
			},
		},
	}},
}

func pushedKind(kind string) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: metricsv1alpha1.GroupName, Version: metricsv1alpha1.GroupVersion.Version, Kind: kind}
}
