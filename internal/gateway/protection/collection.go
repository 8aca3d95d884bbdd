package protection

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

const (
	// collectionPage is how many objects of a collection are looked at together.
	collectionPage = 500
	// deleteAtOnce is how many of them are deleted at the same time.
	deleteAtOnce = 16
)

// deleteCollection deletes a collection unless one of its objects is protected, in which case none is deleted. Where policies pick
// objects by what can change, each object is judged once more, and deleted in the version that was judged. The error can be written as it
// is; with one, nothing has been answered.
func (g *Guard) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	resource, ok := g.Objects.Resource(r.Context(), gvr(info))
	if !ok {
		g.Next.ServeHTTP(w, r)
		return nil
	}
	query := r.URL.Query()
	objections, err := g.search(r.Context(), resource, info.Namespace, query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		return err
	}
	if err := g.decide(r, info, "deleting the collection", "", objections); err != nil {
		return err
	}
	if !g.mayPick(resource, info.Namespace) {
		// Nothing but the label can protect an object of these meanwhile, and the API servers look at that themselves.
		if err := leaveOutProtected(r); err != nil {
			return err
		}
		g.Next.ServeHTTP(w, r)
		return nil
	}
	return g.deleteEach(w, r, info)
}

// mayPick reports whether a policy against deletion may pick an object of a resource in a namespace.
func (g *Guard) mayPick(resource kinds.Resource, namespace string) bool {
	of := target{
		GroupKind: schema.GroupKind{Group: resource.Group, Kind: resource.Kind}, namespace: namespace,
		namespaceLabels: g.Policies.namespaceLabels(namespace), unknownNamespace: g.Policies.namespacesUnknown(),
	}
	for _, p := range g.Policies.all() {
		if p.deletion == nil {
			continue
		}
		for i := range p.selectors {
			if p.selectors[i].mayPick(of) {
				return true
			}
		}
	}
	return false
}

// deleteEach deletes the objects of a collection one by one, each as if it were asked for alone. A client that asked for a page gets that
// page, whose token leads to the next one; any other gets a success.
func (g *Guard) deleteEach(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	paged := query.Get("limit") != "" || query.Get("continue") != ""
	if !paged {
		query.Set("limit", strconv.Itoa(collectionPage))
	}
	for {
		page := g.listPage(r, info, query)
		if page.code != http.StatusOK {
			page.passOn(w)
			return nil
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(page.body.Bytes(), &list); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("reading what is to be deleted: %w", err))
		}
		var group errgroup.Group
		group.SetLimit(deleteAtOnce)
		for i := range list.Items {
			group.Go(func() error { return g.deleteOne(r, info, list.Items[i].Name, body) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		switch {
		case paged:
			page.passOn(w)
			return nil
		case list.Continue == "":
			status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Group: info.APIGroup, Kind: info.Resource}}
			responsewriters.WriteObjectNegotiated(forward.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, status, false)
			return nil
		}
		query.Set("continue", list.Continue)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
}

// listPage lists what is to be deleted.
func (g *Guard) listPage(r *http.Request, info *request.RequestInfo, query url.Values) *recorder {
	inner := *info
	inner.Verb = "list"
	list := r.Clone(request.WithRequestInfo(r.Context(), &inner))
	list.Method, list.Body, list.ContentLength, list.URL.RawQuery = http.MethodGet, http.NoBody, 0, query.Encode()
	for _, key := range []string{"Accept-Encoding", "Content-Type", "Content-Length"} {
		list.Header.Del(key)
	}
	list.Header.Set("Accept", runtime.ContentTypeJSON)
	page := &recorder{header: http.Header{}}
	g.Next.ServeHTTP(page, list)
	return page
}

// deleteOne judges and deletes one object. One that is gone already is not missed.
func (g *Guard) deleteOne(r *http.Request, info *request.RequestInfo, name string, body []byte) error {
	inner := *info
	inner.Verb, inner.Name = "delete", name
	inner.Path = info.Path + "/" + name
	inner.Parts = []string{info.Resource, name}
	one := r.Clone(request.WithRequestInfo(r.Context(), &inner))
	query := r.URL.Query()
	for _, key := range []string{"limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "timeoutSeconds"} {
		query.Del(key)
	}
	one.URL.Path, one.URL.RawQuery = r.URL.Path+"/"+name, query.Encode()
	one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	one.Header.Set("Accept", runtime.ContentTypeJSON)
	one.Header.Del("Accept-Encoding")
	answer := &recorder{header: http.Header{}}
	if err := g.guard(answer, one, &inner); err != nil {
		return err
	}
	if answer.code < http.StatusBadRequest || answer.code == http.StatusNotFound {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.body.Bytes(), &status); err == nil && status.Code != 0 {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(answer.code, "delete", groupResource(info), name, answer.body.String(), 0, true)
}
