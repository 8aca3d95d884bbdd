package agents

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	kjson "sigs.k8s.io/json"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/inner"
)

// Works lets agents change nothing of their Works but what is below a subresource, and remove finalizers. RBAC cannot say that. The annotations of a
// Work name its binding: with others, what an agent reports would count for a template of which its cluster has no copy, and that could not be
// deleted before the agent agrees. A finalizer of its own would keep the Work after its cluster has left.
type Works struct {
	// Next serves requests, also those that read a Work.
	Next http.Handler
}

// ServeHTTP implements http.Handler.
func (h *Works) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || info.APIGroup != workv1alpha1.GroupVersion.Group || info.Resource != "works" || info.Subresource != "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	u, known := request.UserFrom(r.Context())
	if !known || !isAgent(u) || info.Verb != "patch" && info.Verb != "update" {
		h.Next.ServeHTTP(w, r)
		return
	}
	release, err := h.release(r, info)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	clone := r.Clone(r.Context())
	forward.SetBody(clone, release)
	h.Next.ServeHTTP(w, clone)
}

// release is what an agent may send to a Work: the finalizers that stay, and the version that it has read.
type release struct {
	Metadata struct {
		Finalizers      []string  `json:"finalizers"`
		ResourceVersion string    `json:"resourceVersion,omitempty"`
		UID             types.UID `json:"uid,omitempty"`
	} `json:"metadata"`
}

// release returns the merge patch in a request, encoded again so that an API server finds nothing else in it. The error can be sent to the client.
func (h *Works) release(r *http.Request, info *request.RequestInfo) ([]byte, error) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name,
		errors.New("an agent may only remove finalizers of a Work, with a merge patch"))
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != string(types.MergePatchType) {
		return nil, refused
	}
	body, err := forward.ReadBody(r)
	if err != nil {
		return nil, err
	}
	var patch release
	if strict, err := kjson.UnmarshalStrict(body, &patch); err != nil || len(strict) > 0 || patch.Metadata.Finalizers == nil {
		return nil, refused
	}
	if len(patch.Metadata.Finalizers) > 0 {
		present, err := h.finalizers(r, info)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(patch.Metadata.Finalizers, func(f string) bool { return !slices.Contains(present, f) }) {
			return nil, refused
		}
	}
	return json.Marshal(patch)
}

// finalizers returns those that a Work has.
func (h *Works) finalizers(r *http.Request, info *request.RequestInfo) ([]string, error) {
	get := *info
	get.Verb = "get"
	read := r.Clone(request.WithRequestInfo(r.Context(), &get))
	read.Method, read.Body, read.ContentLength = http.MethodGet, http.NoBody, 0
	read.URL.RawQuery = ""
	read.Header = http.Header{"Accept": {"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}}
	answer := inner.Do(h.Next, read)
	if err := answer.Err(); err != nil {
		return nil, err
	}
	var work metav1.PartialObjectMetadata
	if err := utiljson.Unmarshal(answer.Body(), &work); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return work.Finalizers, nil
}
