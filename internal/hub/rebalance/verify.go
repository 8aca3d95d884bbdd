package rebalance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/cellplane/cellplane/internal/cellstore"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// reader reads objects through the API server of a cell, in their stored encoding.
type reader struct {
	cell   string
	client *rest.RESTClient
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// mapping is the lock of the mapper, which is not safe for concurrent use. The mapper may send requests and takes
	// no context.
	mapping chan struct{}
}

func newReader(cell string, config *rest.Config) (*reader, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the cell has flow control
	config.NegotiatedSerializer = serializer.WithoutConversionCodecFactory{CodecFactory: clientgoscheme.Codecs}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for cell %s: %w", cell, err)
	}
	config.Timeout = discoveryTimeout
	resources, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for cell %s: %w", cell, err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(resources))
	return &reader{cell: cell, client: client, mapper: mapper, mapping: make(chan struct{}, 1)}, nil
}

// path returns the URL path of an object in its stored version.
func (r *reader) path(ctx context.Context, object *cellstore.Object) (string, error) {
	root, resource, err := r.resource(ctx, object)
	return strings.Join([]string{root, "namespaces", object.Namespace, resource, object.Name}, "/"), err
}

// collection returns the URL path of all objects of the kind.
func (r *reader) collection(ctx context.Context, object *cellstore.Object) (string, error) {
	root, resource, err := r.resource(ctx, object)
	return root + "/" + resource, err
}

func (r *reader) resource(ctx context.Context, object *cellstore.Object) (root, name string, err error) {
	select {
	case <-ctx.Done():
		return "", "", ctx.Err()
	case r.mapping <- struct{}{}:
		defer func() { <-r.mapping }()
	}
	mapping, err := r.mapper.RESTMapping(object.GroupKind(), object.Version)
	if meta.IsNoMatchError(err) {
		r.mapper.Reset() // it may be served by now
		mapping, err = r.mapper.RESTMapping(object.GroupKind(), object.Version)
	}
	if err != nil {
		return "", "", fmt.Errorf("cell %s does not serve %s: %w", r.cell, object.GroupVersionKind, err)
	}
	if object.Group == "" {
		return "/api/" + object.Version, mapping.Resource.Resource, nil
	}
	return "/apis/" + object.Group + "/" + object.Version, mapping.Resource.Resource, nil
}

const (
	mediaJSON  = "application/json"
	mediaProto = "application/vnd.kubernetes.protobuf"
)

// mediaOf returns the media type of a stored object.
func mediaOf(value []byte) string {
	if bytes.HasPrefix(value, []byte(objbytes.ProtobufPrefix)) {
		return mediaProto
	}
	return mediaJSON
}

// read returns an object, at least as new as a revision, without its resourceVersion.
func (r *reader) read(ctx context.Context, object *cellstore.Object, media string, revision int64) ([]byte, error) {
	path, err := r.path(ctx, object)
	if err != nil {
		return nil, err
	}
	request := r.client.Verb(http.MethodGet).AbsPath(path).SetHeader("Accept", media)
	if revision > 0 {
		request.Param("resourceVersion", strconv.FormatInt(revision, 10))
	}
	served, err := request.DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading %s through the API server of cell %s: %w", object, r.cell, err)
	}
	return cellstore.WithoutVersion(served)
}

var errDiffers = errors.New("the new cell serves the copy differently from the original; it stays frozen until both agree")

// verify compares what the new cell serves with what was stored there. An object that was stored by an older version
// may be served with newer defaults: then both cells have to serve the same.
func verify(ctx context.Context, from, to *reader, object *cellstore.Object, stored cellstore.KV) error {
	media := mediaOf(stored.Value)
	served, err := to.read(ctx, object, media, stored.ModRevision)
	if err != nil {
		return err
	}
	if bytes.Equal(bytes.TrimSpace(served), bytes.TrimSpace(stored.Value)) {
		return nil
	}
	original, err := from.read(ctx, object, media, 0)
	if err != nil {
		return err
	}
	if !bytes.Equal(served, original) {
		return errDiffers
	}
	return nil
}
