package kinds

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsGroup is the group that kubectl top needs. The hub does not serve it: it is merged over the members.
var metricsGroup = apidiscoveryv2.APIGroupDiscovery{
	ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"},
	Versions: []apidiscoveryv2.APIVersionDiscovery{{
		Version:   "v1beta1",
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Resources: []apidiscoveryv2.APIResourceDiscovery{
			metricsResource("nodes", "NodeMetrics", apidiscoveryv2.ScopeCluster),
			metricsResource("pods", "PodMetrics", apidiscoveryv2.ScopeNamespace),
		},
	}},
}

func metricsResource(resource, kind string, scope apidiscoveryv2.ResourceScope) apidiscoveryv2.APIResourceDiscovery {
	return apidiscoveryv2.APIResourceDiscovery{
		Resource: resource, ResponseKind: &metav1.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: kind},
		Scope: scope, Verbs: []string{"get", "list"},
	}
}

// with announces a group, unless the hub does so itself.
func (d documents) with(group apidiscoveryv2.APIGroupDiscovery) documents {
	if slices.ContainsFunc(d.Groups.Items, func(other apidiscoveryv2.APIGroupDiscovery) bool { return other.Name == group.Name }) {
		return d
	}
	d.Groups.Items = append(slices.Clip(d.Groups.Items), group)
	return d
}
