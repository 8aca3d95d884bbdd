package native

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/interpreter/kinds"
)

// Table holds the kinds of Kubernetes. It must not be changed.
var Table = kinds.Table{
	gvk("apps", "v1", "Deployment"):  deployment,
	gvk("apps", "v1", "ReplicaSet"):  replicaSet,
	gvk("apps", "v1", "StatefulSet"): statefulSet,
	gvk("apps", "v1", "DaemonSet"):   daemonSet,

	gvk("batch", "v1", "Job"):     job,
	gvk("batch", "v1", "CronJob"): cronJob,

	gvk("", "v1", "Pod"):                   pod,
	gvk("", "v1", "Service"):               service,
	gvk("", "v1", "ServiceAccount"):        serviceAccount,
	gvk("", "v1", "Secret"):                secret,
	gvk("", "v1", "PersistentVolume"):      persistentVolume,
	gvk("", "v1", "PersistentVolumeClaim"): persistentVolumeClaim,

	gvk("networking.k8s.io", "v1", "Ingress"):                 ingress,
	gvk("multicluster.x-k8s.io", "v1alpha1", "ServiceImport"): serviceImport,
	gvk("policy", "v1", "PodDisruptionBudget"):                podDisruptionBudget,
	gvk("autoscaling", "v2", "HorizontalPodAutoscaler"):       horizontalPodAutoscaler,
}

func gvk(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

var (
	specReplicas = kinds.Path{"spec", "replicas"}
	podTemplate  = kinds.Path{"spec", "template", "spec"}
)
