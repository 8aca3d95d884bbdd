package execution

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/engine/cell"
)

// Read reads an object from a member; nil if there is none. The cache does not have it before this cell's engine has written it.
func (e *Controller) Read(ctx context.Context, cluster string, gvk schema.GroupVersionKind, key cell.Key) (*unstructured.Unstructured, error) {
	member, err := e.queueOf(cluster).current()
	if err != nil {
		return nil, err
	}
	if err := member.Broken(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client, _, err := member.Resource(ctx, gvk, key.Namespace)
	if meta.IsNoMatchError(err) {
		return nil, nil // a kind that is not served has no objects
	}
	if err != nil {
		member.Report(err)
		return nil, err
	}
	obj, err := client.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	member.Report(err)
	return obj, err
}
