// Package wake requeues objects of controllers when something else has changed.
package wake

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
)

// ClusterOfSpace requeues the Cluster of an execution space, which is a namespace.
func ClusterOfSpace() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, namespace client.Object) []reconcile.Request {
		cluster, ok := names.ClusterFromExecutionNamespace(namespace.GetName())
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: cluster}}}
	})
}

// AllClusters requeues all Clusters, for objects that may affect any of them.
func AllClusters(reader client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		clusters := &clusterv1alpha1.ClusterList{}
		if err := reader.List(ctx, clusters); err != nil {
			log.FromContext(ctx).Error(err, "listing clusters failed, they are not requeued")
			return nil
		}
		requests := make([]reconcile.Request, 0, len(clusters.Items))
		for i := range clusters.Items {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: clusters.Items[i].Name}})
		}
		return requests
	})
}
