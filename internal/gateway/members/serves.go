package members

import clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"

// Serve reports whether any member serves an API, such as metrics.k8s.io/v1beta1.
func (d *Directory) Serve(groupVersion string) bool {
	for _, object := range d.clusters.GetStore().List() {
		cluster, ok := object.(*clusterv1alpha1.Cluster)
		if !ok {
			continue
		}
		for _, enabled := range cluster.Status.APIEnablements {
			if enabled.GroupVersion == groupVersion {
				return true
			}
		}
	}
	return false
}
