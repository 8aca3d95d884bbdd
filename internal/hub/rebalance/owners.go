package rebalance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/slots"
)

// keptOwners is of how many epochs the owners are published: gateways that lag behind take each epoch in turn.
const keptOwners = 8

// publishOwners publishes since when the cells own their slots, before any gateway routes by the epoch. The owners of an epoch are computed
// once. Whoever computes them from the same former ones gets the same result; one who knows older ones only is refused by the hub.
func (c *change) publishOwners(ctx context.Context) error {
	published := &corev1.Secret{}
	err := c.Fresh.Get(ctx, types.NamespacedName{Namespace: names.SystemNamespace, Name: names.SlotOwnersSecret}, published)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return fmt.Errorf("reading the owners of slots: %w", err)
	}
	data, changed, err := nextOwners(published.Data, c.compiled)
	if err != nil || !changed {
		return err
	}
	published.Data = data
	if absent {
		published.ObjectMeta = metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.SlotOwnersSecret}
		published.Type = names.SlotOwnersType
		err = c.Hub.Create(ctx, published)
	} else {
		err = c.Hub.Update(ctx, published) // it fails if another hub manager has published meanwhile
	}
	if err != nil {
		return fmt.Errorf("publishing the owners of slots: %w", err)
	}
	return nil
}

// nextOwners adds the owners of a topology to those published before. A federation that has none yet begins with this topology.
func nextOwners(published map[string][]byte, m *slots.Map) (data map[string][]byte, changed bool, err error) {
	epochs, err := slots.PublishedEpochs(published)
	if err != nil {
		return nil, false, err
	}
	if slices.Contains(epochs, m.Epoch()) {
		return published, false, nil
	}
	var last *slots.Owners
	if n := len(epochs); n > 0 {
		if last, err = slots.PublishedOwners(published, epochs[n-1]); err != nil {
			return nil, false, err
		}
	}
	next, err := last.Next(m)
	if err != nil {
		return nil, false, err
	}
	encoded, err := next.Encode()
	if err != nil {
		return nil, false, err
	}
	data = map[string][]byte{slots.PublishedKey(m.Epoch()): encoded}
	for _, epoch := range epochs[max(0, len(epochs)-keptOwners+1):] {
		data[slots.PublishedKey(epoch)] = published[slots.PublishedKey(epoch)]
	}
	return data, true, nil
}
