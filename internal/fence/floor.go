package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// FloorPath is where the floor of a cell, and that of the hub, is read. Without a resourceVersion the read is consistent: it shows every
// floor that was stored before it was sent.
const FloorPath = "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases/" + leaseName

// votersAnnotation lists, on the hub, the cells of the last topology that was in force.
const votersAnnotation = "cellplane.io/voters"

// FloorIn returns the floor in an answer to a read of FloorPath. A floor that cannot be understood is an error, and never low.
func FloorIn(answer []byte) (int64, error) {
	var lease coordinationv1.Lease
	if err := json.Unmarshal(answer, &lease); err != nil {
		return 0, fmt.Errorf("decoding the fence: %w", err)
	}
	floor, err := strconv.ParseInt(lease.Annotations[floorAnnotation], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("decoding the fence: %w", err)
	}
	return floor, nil
}

// Hub is the fence of the hub. It has a floor only, as a voter about the writer leases of gateways: see package quorum.
type Hub struct{ client kubernetes.Interface }

// OnHub returns the fence of a hub.
func OnHub(client kubernetes.Interface) *Hub { return &Hub{client: client} }

// Raise raises the floor. It never lowers it.
func (h *Hub) Raise(ctx context.Context, epoch int64) error {
	return h.change(ctx, func(annotations map[string]string) {
		if floor, err := strconv.ParseInt(annotations[floorAnnotation], 10, 64); err != nil || floor < epoch {
			annotations[floorAnnotation] = strconv.FormatInt(epoch, 10)
		}
	})
}

// PutInForce records the cells of a topology that is in force now.
func (h *Hub) PutInForce(ctx context.Context, cells []string) error {
	return h.change(ctx, func(annotations map[string]string) { annotations[votersAnnotation] = strings.Join(cells, ",") })
}

// InForce returns the cells of the last topology in force, nil if they were never recorded.
func (h *Hub) InForce(ctx context.Context) ([]string, error) {
	lease, err := h.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the fence of the hub: %w", err)
	}
	if lease.Annotations[votersAnnotation] == "" {
		return nil, nil
	}
	return strings.Split(lease.Annotations[votersAnnotation], ","), nil
}

// change edits the annotations of the fence, which it creates if there is none.
func (h *Hub) change(ctx context.Context, edit func(map[string]string)) error {
	leases := h.client.CoordinationV1().Leases(leaseNamespace)
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultBackoff, again, func() error {
		lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: leaseName, Annotations: map[string]string{floorAnnotation: "0"}}}
			edit(lease.Annotations)
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		before := lease.DeepCopy()
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		edit(lease.Annotations)
		if before.Annotations[floorAnnotation] == lease.Annotations[floorAnnotation] && before.Annotations[votersAnnotation] == lease.Annotations[votersAnnotation] {
			return nil
		}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("raising the fence of the hub: %w", err)
	}
	return nil
}
