package router

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
)

// metadata reads the metadata of an object from a cell, with the gateway's own identity.
func (rt *Router) metadata(ctx context.Context, c *call, cell slots.Index, name string) (*metav1.PartialObjectMetadata, error) {
	data, err := rt.inCell(ctx, c, cell, http.MethodGet, c.objectPath(name), nil, nil)
	if err != nil {
		return nil, err
	}
	object := &metav1.PartialObjectMetadata{}
	if err := utiljson.Unmarshal(data, object); err != nil {
		return nil, forward.Unreachable(c.view.Name(cell), err)
	}
	return object, nil
}

// objectPath returns the path of an object, without subresources.
func (c *call) objectPath(name string) string {
	return c.collectionPath() + "/" + name
}

func (c *call) collectionPath() string {
	parts := []string{"", c.APIPrefix}
	if c.APIGroup != "" {
		parts = append(parts, c.APIGroup)
	}
	parts = append(parts, c.APIVersion)
	// RequestInfo puts a request for a namespace into that namespace.
	if c.Namespace != "" && (c.Resource != "namespaces" || c.APIGroup != "") {
		parts = append(parts, "namespaces", c.Namespace)
	}
	return strings.Join(append(parts, c.Resource), "/")
}
