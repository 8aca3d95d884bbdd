package router

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// deleteAtOnce is how many objects of a page are deleted at the same time.
const deleteAtOnce = 16

// deletePage deletes what a list with a limit shows, and answers with that list, as an API server does: its token leads to the next page.
func (rt *Router) deletePage(w http.ResponseWriter, r *http.Request, c *call) {
	body, err := readBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	page := &pageWriter{header: http.Header{}}
	rt.list(page, listRequest(r), c.as("list", c.Namespace, ""))
	if page.code != http.StatusOK {
		page.passOn(w)
		return
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(page.body, &list); err != nil {
		forward.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("reading what is to be deleted: %w", err)))
		return
	}
	annotate(r.Context(), "all", strconv.FormatInt(c.view.Epoch(), 10))
	var group errgroup.Group
	group.SetLimit(deleteAtOnce)
	for i := range list.Items {
		group.Go(func() error {
			return rt.deleteOne(r, c.as("delete", list.Items[i].Namespace, list.Items[i].Name), body)
		})
	}
	if err := group.Wait(); err != nil {
		forward.WriteError(w, r, asStatus(err, c))
		return
	}
	page.passOn(w)
}

// as is a request of the same user for something else of the same resource.
func (c *call) as(verb, namespace, name string) *call {
	info := *c.RequestInfo
	info.Verb, info.Namespace, info.Name, info.Subresource = verb, namespace, name, ""
	return &call{RequestInfo: &info, view: c.view, placement: c.placement}
}

// listRequest is the request that lists what a request is going to delete.
func listRequest(r *http.Request) *http.Request {
	list := r.Clone(r.Context())
	list.Method, list.Body, list.ContentLength = http.MethodGet, http.NoBody, 0
	for _, key := range []string{"Accept-Encoding", "Content-Type", "Content-Length"} {
		list.Header.Del(key)
	}
	list.Header.Set("Accept", "application/json")
	return list
}

// deleteOne deletes an object as if the user had asked for it alone. One that is gone already is not missed.
func (rt *Router) deleteOne(r *http.Request, c *call, body []byte) error {
	request := r.Clone(r.Context())
	request.URL.Path, request.URL.RawQuery = c.objectPath(c.Name), deleteQuery(r.URL.Query()).Encode()
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.Header.Set("Accept", "application/json")
	request.Header.Del("Accept-Encoding")
	answer := &pageWriter{header: http.Header{}}
	rt.single(answer, request, c)
	if answer.code < http.StatusBadRequest || answer.code == http.StatusNotFound {
		return nil
	}
	if status := readStatus(answer.body); status != nil {
		return &apierrors.StatusError{ErrStatus: *status}
	}
	return apierrors.NewGenericServerResponse(answer.code, "delete", c.groupResource(), c.Name, string(answer.body), 0, true)
}

// deleteQuery is what a query says about deleting, without what it says about listing.
func deleteQuery(query url.Values) url.Values {
	for _, key := range []string{"limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "timeoutSeconds"} {
		delete(query, key)
	}
	return query
}

// pageWriter keeps a list.
type pageWriter struct {
	header http.Header
	code   int
	body   []byte
}

// Header implements http.ResponseWriter.
func (p *pageWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *pageWriter) WriteHeader(code int) {
	if p.code == 0 {
		p.code = code
	}
}

// Write implements http.ResponseWriter.
func (p *pageWriter) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	p.body = append(p.body, b...)
	return len(b), nil
}

func (p *pageWriter) passOn(w http.ResponseWriter) {
	for key, values := range p.header {
		w.Header()[key] = values
	}
	w.WriteHeader(p.code)
	_, _ = w.Write(p.body) // a client that has gone needs no answer
}
