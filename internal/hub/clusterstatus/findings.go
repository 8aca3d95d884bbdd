package clusterstatus

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// findings are the collected state of a member. Unknown parts leave the status as it is.
type findings struct {
	version string
	apis    []clusterv1alpha1.APIEnablement
	// complete is the condition of apis, nil if discovery was not tried.
	complete *metav1.Condition
	// summarize writes the summaries of nodes and resources.
	summarize func(*clusterv1alpha1.Cluster)
}

func (f *findings) writeTo(cluster *clusterv1alpha1.Cluster) {
	if f.version != "" {
		cluster.Status.KubernetesVersion = f.version
	}
	if len(f.apis) > 0 {
		cluster.Status.APIEnablements = f.apis
	}
	if f.complete != nil {
		meta.SetStatusCondition(&cluster.Status.Conditions, *f.complete)
	}
	if f.summarize != nil {
		f.summarize(cluster)
	}
}
