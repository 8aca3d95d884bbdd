package cellconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/atrest"
	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/fleet"
)

// keysOf returns the keys in the Secret that a Cell names, nil if it names none.
func keysOf(cell *cellplanev1alpha1.Cell, secret *corev1.Secret) *atrest.Keys {
	if cell.Spec.Etcd.Encryption == nil {
		return nil
	}
	keys, err := read(cell, secret)
	if err != nil {
		return atrest.Missing(err)
	}
	return keys
}

func read(cell *cellplanev1alpha1.Cell, secret *corev1.Secret) (*atrest.Keys, error) {
	from := fmt.Sprintf("Secret %s/%s", secret.Namespace, secret.Name)
	if secret.UID == "" {
		return nil, fmt.Errorf("%w: there is no %s with the EncryptionConfiguration of cell %s", atrest.ErrKeys, from, cell.Name)
	}
	text, found := secret.Data[atrest.ConfigKey]
	if !found {
		return nil, fmt.Errorf("%w: %s has no %s with the EncryptionConfiguration of cell %s", atrest.ErrKeys, from, atrest.ConfigKey, cell.Name)
	}
	return atrest.New(from, text)
}

const (
	// probeName is the name of the objects that show how an API server encrypts. They are in a namespace that gateways do not route to cells.
	probeName = "cellplane-encryption-probe"
	// probeAnnotation makes each of them another object, so that it is stored again.
	probeAnnotation = "cellplane.io/probed-at"
	probeTimeout    = 5 * time.Second
)

// probeKinds are the kinds of atrest.Probed.
var probeKinds = map[schema.GroupResource]schema.GroupVersionKind{
	{Resource: "configmaps"}:                           {Version: "v1", Kind: "ConfigMap"},
	{Resource: "secrets"}:                              {Version: "v1", Kind: "Secret"},
	{Group: "coordination.k8s.io", Resource: "leases"}: {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
}

// Probe returns how the API servers of the cell are asked for what they encrypt with.
func (c *Cell) Probe(store *cellstore.Store) atrest.Probe {
	return func(ctx context.Context, resource schema.GroupResource) (key string, stored []byte, err error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		writer, err := c.Client()
		if err != nil {
			return "", nil, fmt.Errorf("%w: %w", atrest.ErrNoAnswer, err)
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(probeKinds[resource])
		object.SetNamespace(names.SystemNamespace)
		object.SetName(probeName)
		object.SetAnnotations(map[string]string{probeAnnotation: time.Now().UTC().Format(time.RFC3339Nano)})
		patch, err := json.Marshal(object)
		if err != nil {
			return "", nil, err
		}
		applied := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: probeName}}
		applied.SetGroupVersionKind(probeKinds[resource])
		err = writer.Patch(ctx, applied, client.RawPatch(types.ApplyPatchType, patch), &client.PatchOptions{FieldManager: "cellplane", Force: ptr.To(true)})
		switch {
		case fleet.Unreachable(err):
			return "", nil, fmt.Errorf("%w: the API server of cell %s: %w", atrest.ErrNoAnswer, c.name, err)
		case err != nil:
			return "", nil, fmt.Errorf("storing a probe through the API server of cell %s: %w", c.name, err)
		}
		key = store.Key(resource.Resource + "/" + names.SystemNamespace + "/" + probeName)
		if stored, err = store.Stored(ctx, key); err != nil && !errors.Is(err, cellstore.ErrAbsent) {
			err = fmt.Errorf("%w: %w", atrest.ErrNoAnswer, err) // nor does the store answer to a write
		}
		return key, stored, err
	}
}
