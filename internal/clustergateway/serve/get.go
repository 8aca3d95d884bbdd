package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/cellplane/cellplane/internal/clustercache"
	"github.com/cellplane/cellplane/internal/clustergateway/views"
)

// get serves one object.
func (s *Server) get(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, e *encoder, warnings warner) {
	if version := r.URL.Query().Get("resourceVersion"); version != "" && version != "0" {
		n, err := strconv.ParseUint(version, 10, 64)
		if err != nil {
			WriteError(w, r, apierrors.NewBadRequest("resourceVersion: "+err.Error()))
			return
		}
		if err := e.store.Foreign(n); err != nil {
			WriteError(w, r, err)
			return
		}
	}
	cluster := ""
	if e.removed != nil { // of a resource that is searched, each cluster's object is shown
		cluster = r.Header.Get(views.ClusterHeader)
	}
	object, err := e.store.Get(cluster, info.Namespace, info.Name)
	if err == nil && !s.Shows(object.Cluster) {
		err = apierrors.NewNotFound(e.GroupResource(), info.Name)
	}
	if err != nil && r.Header.Get(views.ContestedHeader) != "" {
		// The gateway asks because no share shows the object: it is moving between shares.
		object, err = e.store.GetAmong(s.Shows, info.Namespace, info.Name)
	}
	if err != nil {
		WriteError(w, r, err)
		return
	}
	warnings.object(e.resource, object, e.store.Clusters())
	body, err := e.object(object)
	if err == nil {
		body, err = e.dress(body)
	}
	if err != nil {
		WriteError(w, r, apierrors.NewInternalError(err))
		return
	}
	if object.Cluster == "" {
		w.Header().Set(views.TemplateHeader, "true")
	}
	out := newCompressor(w, r, e.mediaType)
	if _, err := out.Write(body); err != nil {
		failed(r, err)
	}
	if err := out.Close(); err != nil {
		failed(r, err)
	}
}

// dress converts JSON to the format that the client accepts.
func (e *encoder) dress(body []byte) ([]byte, error) {
	switch {
	case e.mediaType == runtime.ContentTypeYAML:
		return yaml.JSONToYAML(body)
	case e.pretty && e.mediaType == runtime.ContentTypeJSON:
		var out bytes.Buffer
		err := json.Indent(&out, body, "", "  ")
		return out.Bytes(), err
	default:
		return body, nil
	}
}

// versionsSubresource maps a version of ours to the version of the member.
const versionsSubresource = "memberversion"

// MemberVersion is the response of that subresource.
type MemberVersion struct {
	// Cluster is the member, and empty for a template.
	Cluster string `json:"cluster"`
	// ResourceVersion is that of the member.
	ResourceVersion string `json:"resourceVersion"`
}

// memberVersion serves the member and its version of the object that a client got with a version of ours.
func (s *Server) memberVersion(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, res *resource) {
	version, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
	if err != nil {
		WriteError(w, r, apierrors.NewBadRequest("version: "+err.Error()))
		return
	}
	cluster, memberVersion, ok := res.store.MemberVersion(info.Namespace, info.Name, version)
	if !ok {
		WriteError(w, r, expired())
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(MemberVersion{Cluster: cluster, ResourceVersion: memberVersion}) // the client may have gone
}

// revisionSubresource maps a revision of the member to the version under which it is shown here.
const revisionSubresource = "memberrevision"

// Query parameters of that subresource.
const (
	clusterParameter = "cluster"
	versionParameter = "version"
	deletedParameter = "deleted"
)

// longestWait bounds how long that subresource waits for a revision. Gateways wait less.
const longestWait = 30 * time.Second

// ShownVersion is the response of that subresource.
type ShownVersion struct {
	// ResourceVersion is ours.
	ResourceVersion string `json:"resourceVersion"`
}

// shownVersion waits until a revision of an object is shown, and serves its version. 404 means that this is not expected.
func (s *Server) shownVersion(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, res *resource) {
	ctx, cancel := context.WithTimeout(r.Context(), longestWait)
	defer cancel()
	go func() {
		select {
		case <-s.Stopping:
		case <-res.removed:
		case <-ctx.Done():
		}
		cancel()
	}()
	query := r.URL.Query()
	revision := clustercache.Revision{
		Cluster: query.Get(clusterParameter), Namespace: info.Namespace, Name: info.Name,
		Version: query.Get(versionParameter), Deleted: query.Get(deletedParameter) != "",
	}
	if !s.Shows(revision.Cluster) {
		WriteError(w, r, apierrors.NewNotFound(res.GroupResource(), info.Name))
		return
	}
	version, err := res.store.VersionOf(ctx, revision)
	switch {
	case errors.Is(err, clustercache.ErrNotShown):
		WriteError(w, r, apierrors.NewNotFound(res.GroupResource(), info.Name))
	case err != nil:
		WriteError(w, r, apierrors.NewTimeoutError("the revision is not shown yet", 1))
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_ = json.NewEncoder(w).Encode(ShownVersion{strconv.FormatUint(version, 10)}) // the client may have gone
	}
}
