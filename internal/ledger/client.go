package ledger

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

const resourceName = "clusterledgers"

// ledgerClient returns a client for the group cellplane.io without a rate limit: batching limits the rate.
func ledgerClient(base *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := cellplanev1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(base)
	config.QPS, config.Burst = -1, 0
	config.GroupVersion, config.APIPath = &cellplanev1alpha1.GroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	return rest.RESTClientFor(config)
}

func getLedger(ctx context.Context, client rest.Interface, name string) (*cellplanev1alpha1.ClusterLedger, error) {
	l := &cellplanev1alpha1.ClusterLedger{}
	err := client.Get().Resource(resourceName).Name(name).Do(ctx).Into(l)
	l.ManagedFields = nil
	return l, err
}

// putLedger writes a ledger. It fails with a conflict if the ledger changed.
func putLedger(ctx context.Context, client rest.Interface, l *cellplanev1alpha1.ClusterLedger) (*cellplanev1alpha1.ClusterLedger, error) {
	// Managed fields of thousands of entries are useless; this stops the API server from tracking them.
	l.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	written := &cellplanev1alpha1.ClusterLedger{}
	err := client.Put().Resource(resourceName).Name(l.Name).Body(l).Do(ctx).Into(written)
	written.ManagedFields = nil
	return written, err
}
