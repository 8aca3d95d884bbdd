package views

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// deletionsAtOnce is how many objects of a collection are deleted at a time.
const deletionsAtOnce = 8

// deleteCollection deletes what a list with the same options shows, each object where it is.
func (v *Views) deleteCollection(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	body, err := readBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	query := r.URL.Query()
	query.Del("dryRun") // which is for the deletions
	var items []metav1.PartialObjectMetadata
	for _, s := range v.shares {
		var list metav1.PartialObjectMetadataList
		response, err := s.ask(r.Context(), callerOf(r.Context()), func() *http.Request {
			out := get(r.Context(), collectionPath(info), query)
			out.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
			return out
		})
		if err == nil {
			err = readJSON(response, &list)
		}
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
		items = append(items, list.Items...)
	}
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	for i := range items {
		group.Go(func() error { return v.deleteOne(r, info, &items[i], body) })
	}
	if err := group.Wait(); err != nil {
		forward.WriteError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a client that is gone needs no answer
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusOK,
		Details: &metav1.StatusDetails{Group: info.APIGroup, Kind: info.Resource},
	})
}

// deleteOne deletes an object of a collection. One that is gone is as good as deleted.
func (v *Views) deleteOne(r *http.Request, collection *request.RequestInfo, object *metav1.PartialObjectMetadata, body []byte) error {
	info := *collection
	info.Verb, info.Namespace, info.Name = "delete", object.Namespace, object.Name
	query := url.Values{}
	if dryRun := r.URL.Query()["dryRun"]; len(dryRun) > 0 {
		query["dryRun"] = dryRun
	}
	result, request := inner(r, &info, http.MethodDelete, "application/json", query)
	if len(body) > 0 {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		request.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	}
	v.act(result, request, &info)
	if result.code < http.StatusBadRequest || result.code == http.StatusNotFound {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(result.body.Bytes(), &status); err != nil || status.Code == 0 {
		return apierrors.NewInternalError(errors.Join(err, fmt.Errorf("deleting %s %s/%s was answered with %d", info.Resource, info.Namespace, info.Name, result.code)))
	}
	return &apierrors.StatusError{ErrStatus: status}
}
