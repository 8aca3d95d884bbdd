package router

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/cellplane/cellplane/internal/gateway/protection"
)

// Replicas returns where the objects of a resource have their replicas. Only the hub knows definitions, so it is an error for a custom resource
// while the hub is down.
func (o Objects) Replicas(ctx context.Context, gvr schema.GroupVersionResource) (protection.Replicas, error) {
	usual := protection.Replicas{Paths: [][]string{protection.SpecReplicas}, Scaled: protection.SpecReplicas, Version: gvr.Version}
	if scheme.Scheme.IsGroupRegistered(gvr.Group) {
		return usual, nil
	}
	data, err := o.Hub(ctx, http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+gvr.GroupResource().String(), nil, nil)
	if apierrors.IsNotFound(err) {
		return usual, nil
	}
	if err != nil {
		return usual, err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := utiljson.Unmarshal(data, &definition); err != nil {
		return usual, apierrors.NewInternalError(fmt.Errorf("decoding the definition of %s: %w", gvr.GroupResource(), err))
	}
	return replicasOf(&definition, gvr.Version), nil
}

// replicasOf returns where the objects of a definition have their replicas, for requests in a version of it.
//
// Without a webhook, versions share what is stored: a change in one version also changes the fields that others scale, or removes them. All that
// is stored is visible in the version of the storage. With a webhook, each version shows the same replicas in its own field.
func replicasOf(definition *apiextensionsv1.CustomResourceDefinition, version string) protection.Replicas {
	found := protection.Replicas{Version: version}
	var others [][]string
	stored := version
	for _, v := range definition.Spec.Versions {
		if v.Storage && v.Served {
			stored = v.Name
		}
		if v.Subresources == nil || v.Subresources.Scale == nil {
			continue
		}
		path := strings.Split(strings.TrimPrefix(v.Subresources.Scale.SpecReplicasPath, "."), ".")
		if v.Name == version {
			found.Scaled = path
		}
		others = withPath(others, path)
	}
	converts := definition.Spec.Conversion != nil && definition.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
	switch {
	case !converts:
		found.Version = stored
		if found.Paths = others; len(others) == 0 {
			found.Paths = [][]string{protection.SpecReplicas}
		}
	case found.Scaled != nil:
		found.Paths = [][]string{found.Scaled}
	default:
		found.Paths = withPath(others, protection.SpecReplicas)
	}
	return found
}

// withPath adds a path to others, unless it is there.
func withPath(paths [][]string, path []string) [][]string {
	if slices.ContainsFunc(paths, func(other []string) bool { return slices.Equal(other, path) }) {
		return paths
	}
	return append(paths, path)
}
