package protection

import (
	"bytes"
	"cmp"
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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/limits"
)

const (
	// collectionPage is the number of objects per page, and the most of which a client gets a page.
	collectionPage = 500
	// deleteAtOnce is the number of concurrent deletions.
	deleteAtOnce = 16
)

// metadataOnly is the form of a list without the contents of its objects.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// Query parameters of deletecollection: those that select the objects, and those that apply to each deletion.
var (
	aboutListing  = []string{"limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "timeoutSeconds"}
	aboutDeleting = []string{"dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "ignoreStoreReadErrorWithClusterBreakingPotential"}
)

// deleteCollection deletes a collection. If one of its objects is protected, it deletes none. Otherwise it deletes them one by one in
// their cells, and checks each again by the policies of that moment. As in a single API server this is not atomic. If it returns an
// error, which can be sent to a client, it has not answered.
func (g *Guard) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	resource, found := g.Objects.Resource(r.Context(), gvr(info))
	switch {
	case !found:
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", groupResource(info), "", "", 0, true)
	case resource.Namespaced != (info.Namespace != "") || !resource.Can("deletecollection"):
		return apierrors.NewMethodNotSupported(groupResource(info), "delete")
	}
	body, err := forward.ReadBody(r)
	if err != nil {
		return err
	}
	c := newCollection(r.URL.Query())
	for checked := false; ; {
		page := g.listPage(r, info, c)
		if page.TooLarge() && c.halve() {
			page.Release()
			continue
		}
		if page.Code() != http.StatusOK {
			page.CopyTo(w)
			return nil
		}
		var list metav1.PartialObjectMetadataList
		if err := utiljson.Unmarshal(page.Body(), &list); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("reading the objects to delete: %w", err))
		}
		if !c.paged {
			page.Release()
		}
		// Most collections of a namespace that is deleted are empty, and need no search.
		if !checked && (len(list.Items) > 0 || list.Continue != "") {
			if err := g.checkCollection(r, info, resource); err != nil {
				return err
			}
		}
		checked = true
		if err := g.deletePage(r, info, &list, body); err != nil {
			return err
		}
		switch {
		case c.paged:
			page.CopyTo(w)
			return nil
		case list.Continue == "":
			status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Group: info.APIGroup, Kind: info.Resource}}
			responsewriters.WriteObjectNegotiated(forward.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, status, false)
			return nil
		}
		c.next(list.Continue)
	}
}

// collection selects the objects to delete, page by page.
type collection struct {
	query url.Values
	// paged is set if the client asked for pages. It gets one with its continue token; any other gets a success.
	paged bool
}

func newCollection(query url.Values) collection {
	c := collection{query: without(query, aboutDeleting)}
	limit, err := strconv.ParseInt(cmp.Or(query.Get("limit"), "0"), 10, 64)
	c.paged = err != nil || limit > 0 // the API server refuses what is no number
	if limit <= 0 || limit > collectionPage {
		limit = collectionPage
	}
	if err == nil {
		c.query.Set("limit", strconv.FormatInt(limit, 10))
	}
	return c
}

// halve makes pages half as large, unless they have one object.
func (c *collection) halve() bool {
	limit, err := strconv.Atoi(c.query.Get("limit"))
	if err != nil || limit < 2 {
		return false
	}
	c.query.Set("limit", strconv.Itoa(limit/2))
	return true
}

// next selects the page after a token.
func (c *collection) next(token string) {
	c.query.Set("continue", token)
	c.query.Del("resourceVersion")
	c.query.Del("resourceVersionMatch")
}

// checkCollection returns an error if one of the objects of a collection is protected.
func (g *Guard) checkCollection(r *http.Request, info *request.RequestInfo, resource kinds.Resource) error {
	query := r.URL.Query()
	objections, err := g.search(r.Context(), resource, info.Namespace, query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		return err
	}
	return g.decide(r, info, "deleting the collection", "", objections)
}

// deletePage deletes the objects of a page, each like a request of its own.
func (g *Guard) deletePage(r *http.Request, info *request.RequestInfo, list *metav1.PartialObjectMetadataList, body []byte) error {
	var group errgroup.Group
	group.SetLimit(deleteAtOnce)
	for i := range list.Items {
		group.Go(func() error { return g.deleteOne(r, info, list.Items[i].Name, body) })
	}
	return group.Wait()
}

// listPage lists the objects to delete.
func (g *Guard) listPage(r *http.Request, info *request.RequestInfo, c collection) *inner.Answer {
	asked := *info
	asked.Verb = "list"
	list := r.Clone(request.WithRequestInfo(r.Context(), &asked))
	list.Method, list.Body, list.ContentLength, list.URL.RawQuery = http.MethodGet, http.NoBody, 0, c.query.Encode()
	for _, key := range []string{"Accept-Encoding", "Content-Type", "Content-Length"} {
		list.Header.Del(key)
	}
	list.Header.Set("Accept", runtime.ContentTypeJSON)
	if !c.paged { // the client does not see the page
		list.Header.Set("Accept", metadataOnly)
	}
	return inner.Do(g.Next, list)
}

// deleteOne checks and deletes one object. An object that is gone is a success.
func (g *Guard) deleteOne(r *http.Request, info *request.RequestInfo, name string, body []byte) error {
	asked := *info
	asked.Verb, asked.Name = "delete", name
	asked.Path = info.Path + "/" + name
	asked.Parts = []string{info.Resource, name}
	grant := limits.GrantFrom(r.Context()).Another()
	defer grant.Close()
	one := r.Clone(limits.WithGrant(request.WithRequestInfo(r.Context(), &asked), grant))
	one.URL.Path, one.URL.RawQuery = r.URL.Path+"/"+name, without(r.URL.Query(), aboutListing).Encode()
	one.Body, one.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	one.Header.Set("Accept", runtime.ContentTypeJSON)
	one.Header.Del("Accept-Encoding")
	var refused error
	answer := inner.Do(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { refused = g.guard(w, r, &asked) }), one)
	switch {
	case refused != nil:
		return refused
	case answer.Code() == http.StatusNotFound:
		return nil
	default:
		return answer.Err()
	}
}

func without(query url.Values, keys []string) url.Values {
	for _, key := range keys {
		delete(query, key)
	}
	return query
}
