// Package scale reads and writes the scales of templates in all cells, through the gateway. Its guards hold: what a protection policy or a quota refuses is
// refused here, too.
package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/interpreter/fields"
)

// timeout is how long the gateway may take. It may wait while an object moves between cells.
const timeout = 30 * time.Second

// attempts is how often a scale is written if its object, for example its status, changes at the same time.
const attempts = 5

// FieldManager is the field manager of what is scaled.
const FieldManager = "cellplane-autoscaler"

// ErrChanged says that the replicas are not those that were expected.
var ErrChanged = errors.New("the replicas have changed")

// Exists reports whether an object with a scale exists.
func Exists(ctx context.Context, federation dynamic.Interface, kind *cell.Kind, key cell.Key) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := federation.Resource(kind.GVR()).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}, "scale")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the scale of %s %s: %w", kind.Kind, key, err)
	}
	return true, nil
}

// Write sets the replicas of an object. If they are expected to have a value and have another one, it returns ErrChanged.
func Write(ctx context.Context, federation dynamic.Interface, kind *cell.Kind, key cell.Key, expected *int32, replicas int32) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resource := federation.Resource(kind.GVR()).Namespace(key.Namespace)
	var err error
	for attempt := range attempts {
		if err = write(ctx, resource, key.Name, expected, replicas, attempt > 0); !apierrors.IsConflict(err) {
			break
		}
	}
	return err
}

// write writes once. After a conflict the replicas may be those that are wanted, although others were expected: somewhere on the way the last write was sent
// twice, and the second did not find what the first had changed.
func write(ctx context.Context, resource dynamic.ResourceInterface, name string, expected *int32, replicas int32, again bool) error {
	scale, err := resource.Get(ctx, name, metav1.GetOptions{}, "scale")
	if err != nil {
		return err
	}
	present, _, err := fields.Count(scale.Object, "spec", "replicas") // none is zero
	switch {
	case err != nil:
		return err
	case again && present == replicas:
		return nil
	case expected != nil && present != *expected:
		return ErrChanged
	case present == replicas:
		return nil
	}
	if err := unstructured.SetNestedField(scale.Object, int64(replicas), "spec", "replicas"); err != nil {
		return err
	}
	_, err = resource.Update(ctx, scale, metav1.UpdateOptions{FieldManager: FieldManager}, "scale")
	return err
}
