package thirdparty

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

// Table holds the third-party kinds. Versions with the same fields share an entry. It must not be changed.
var Table = kinds.Table{}

func init() {
	for _, entry := range []struct {
		group    string
		versions []string
		kinds    map[string]kinds.Kind
	}{
		{"apps.kruise.io", []string{"v1alpha1", "v1beta1"}, map[string]kinds.Kind{
			"CloneSet": cloneSet, "StatefulSet": advancedStatefulSet, "UnitedDeployment": unitedDeployment, "SidecarSet": sidecarSet,
			"BroadcastJob": broadcastJob, "AdvancedCronJob": advancedCronJob, "DaemonSet": advancedDaemonSet,
		}},
		{"argoproj.io", []string{"v1alpha1"}, map[string]kinds.Kind{"Workflow": workflow}},
		{"batch.volcano.sh", []string{"v1alpha1"}, map[string]kinds.Kind{"Job": volcanoJob}},
		{"flink.apache.org", []string{"v1beta1"}, map[string]kinds.Kind{"FlinkDeployment": flinkDeployment}},
		{"helm.toolkit.fluxcd.io", []string{"v2beta1", "v2beta2", "v2"}, map[string]kinds.Kind{"HelmRelease": helmRelease}},
		{"kustomize.toolkit.fluxcd.io", []string{"v1beta2", "v1"}, map[string]kinds.Kind{"Kustomization": kustomization}},
		{"source.toolkit.fluxcd.io", []string{"v1beta2", "v1"}, map[string]kinds.Kind{
			"GitRepository": gitRepository, "OCIRepository": ociRepository, "HelmRepository": helmRepository, "Bucket": bucket, "HelmChart": helmChart,
		}},
		{"kubeflow.org", []string{"v1"}, map[string]kinds.Kind{"Notebook": notebook, "PyTorchJob": pyTorchJob, "TFJob": tfJob}},
		{"kubeflow.org", []string{"v2beta1"}, map[string]kinds.Kind{"MPIJob": mpiJob}},
		{"kyverno.io", []string{"v1"}, map[string]kinds.Kind{"Policy": kyvernoPolicy, "ClusterPolicy": kyvernoPolicy}},
		{"ray.io", []string{"v1"}, map[string]kinds.Kind{"RayCluster": rayCluster, "RayJob": rayJob, "RayService": rayService}},
		{"sparkoperator.k8s.io", []string{"v1beta2"}, map[string]kinds.Kind{"SparkApplication": sparkApplication}},
	} {
		for _, version := range entry.versions {
			for name, kind := range entry.kinds {
				Table[schema.GroupVersionKind{Group: entry.group, Version: version, Kind: name}] = kind
			}
		}
	}
}

var (
	specReplicas = kinds.Path{"spec", "replicas"}
	podTemplate  = kinds.Path{"spec", "template", "spec"}
)
