package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/short"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// copyWait is how long a request waits until a namespace or a definition is copied to its cell. That takes milliseconds.
	copyWait = 10 * time.Second
	copyPoll = 25 * time.Millisecond
	// maxStatus limits the error answers that are inspected.
	maxStatus = 64 << 10
)

// insist sends a request to a cell, and retries while the cell lacks a namespace or definition that the hub has. The error can be written
// as it is.
func (rt *Router) insist(r *http.Request, c *call, cell slots.Index, body []byte) (*http.Response, error) {
	var response *http.Response
	attempt := func(ctx context.Context) (bool, error) {
		var err error
		if response, err = rt.askAs(r.Context(), r, c, cell, r.URL.RawQuery, body); err != nil {
			return false, err
		}
		if response.StatusCode != http.StatusNotFound {
			return true, nil
		}
		lacking, err := rt.lacking(ctx, c, cell, response)
		return !lacking || err != nil, err
	}
	done, err := attempt(r.Context())
	if !done && err == nil {
		err = wait.PollUntilContextTimeout(r.Context(), copyPoll, copyWait, false, attempt)
	}
	if errors.Is(err, context.DeadlineExceeded) && response != nil {
		err = nil // the last answer names what is missing
	}
	return response, err
}

// ask sends a request to a cell with another query. The error can be written as it is.
func (rt *Router) ask(ctx context.Context, r *http.Request, c *call, cell slots.Index, query url.Values, body []byte) (*http.Response, error) {
	return rt.askAs(ctx, r, c, cell, query.Encode(), body)
}

// askAs is ask with an encoded query.
func (rt *Router) askAs(ctx context.Context, r *http.Request, c *call, cell slots.Index, query string, body []byte) (*http.Response, error) {
	upstream := rt.upstream(c, cell)
	if upstream == nil {
		return nil, forward.Unreachable(c.view.Name(cell), nil)
	}
	out := &http.Request{
		Method: r.Method,
		URL:    &url.URL{Path: r.URL.Path, RawQuery: query},
		Header: forward.EndToEnd(r.Header),
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	out = out.WithContext(ctx)
	if body != nil {
		out.Body = io.NopCloser(bytes.NewReader(body))
		out.ContentLength = int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	forward.Prepare(out, c.scope(cell))
	response, err := rt.roundTrip(out, c, cell)
	if response, err = forward.Accepted(upstream.Name(), response, err); err != nil {
		return nil, forward.Unanswered(upstream.Name(), r.Method, err)
	}
	if response.StatusCode == http.StatusForbidden && !c.isHub(cell) && refusesUser(peekStatus(response)) {
		response.Body.Close()
		return nil, unready(upstream.Name())
	}
	return response, nil
}

// roundTrip uses a connection for short requests for reads of one object, if there is one, and the general ones for all other requests.
func (rt *Router) roundTrip(out *http.Request, c *call, cell slots.Index) (*http.Response, error) {
	if c.Verb == "get" && out.Method == http.MethodGet && int(cell) < len(c.view.Short) && c.view.Short[cell] != nil {
		response, err := c.view.Short[cell].RoundTrip(out)
		if !errors.Is(err, short.ErrOrdinaryPath) {
			return response, err
		}
	}
	if c.isHub(cell) && forward.IsGateway(out.Context()) {
		return rt.OwnHub.RoundTrip(out)
	}
	return rt.upstream(c, cell).RoundTrip(out)
}

// lacking reports whether a 404 means that the namespace or the resource has not reached the cell yet. The answer can be read again.
func (rt *Router) lacking(ctx context.Context, c *call, cell slots.Index, response *http.Response) (bool, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return false, forward.Unreachable(c.view.Name(cell), err)
	}
	status := readStatus(body)
	switch {
	case status == nil: // the plain text that API servers send for unknown paths
		known, found := rt.Kinds.Lookup(ctx, schema.GroupVersionResource{Group: c.APIGroup, Version: c.APIVersion, Resource: c.Resource})
		return found && known.Namespaced && c.Subresource == "", nil
	case status.Details != nil && status.Details.Kind == "namespaces" && status.Details.Group == "" && status.Details.Name == c.Namespace:
		exists, err := rt.NamespaceExists(ctx, c.Namespace)
		return exists && err == nil, nil //nolint:nilerr // with the hub down, the cell's answer is the best there is
	default:
		return false, nil
	}
}

func readStatus(body []byte) *metav1.Status {
	object, err := runtime.Decode(forward.Codecs.UniversalDeserializer(), body)
	if err != nil {
		return nil
	}
	status, _ := object.(*metav1.Status)
	return status
}
