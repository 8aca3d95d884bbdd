package api

import (
	"k8s.io/apimachinery/pkg/runtime"

	appsv1alpha1 "github.com/cellplane/cellplane/api/apps/v1alpha1"
	autoscalingv1alpha1 "github.com/cellplane/cellplane/api/autoscaling/v1alpha1"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	configv1alpha1 "github.com/cellplane/cellplane/api/config/v1alpha1"
	metricsv1alpha1 "github.com/cellplane/cellplane/api/metrics/v1alpha1"
	multiclusterv1alpha1 "github.com/cellplane/cellplane/api/multicluster/v1alpha1"
	networkingv1alpha1 "github.com/cellplane/cellplane/api/networking/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	remedyv1alpha1 "github.com/cellplane/cellplane/api/remedy/v1alpha1"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

var builder = runtime.SchemeBuilder{
	appsv1alpha1.AddToScheme,
	autoscalingv1alpha1.AddToScheme,
	cellplanev1alpha1.AddToScheme,
	clusterv1alpha1.AddToScheme,
	configv1alpha1.AddToScheme,
	metricsv1alpha1.AddToScheme,
	multiclusterv1alpha1.AddToScheme,
	networkingv1alpha1.AddToScheme,
	policyv1alpha1.AddToScheme,
	remedyv1alpha1.AddToScheme,
	searchv1alpha1.AddToScheme,
	workv1alpha1.AddToScheme,
	workv1alpha2.AddToScheme,
}

// AddToScheme registers every kind of every group in this module's API.
func AddToScheme(scheme *runtime.Scheme) error {
	return builder.AddToScheme(scheme)
}
