package router

import (
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
)

// nameAttempts is how many names are generated for an object with generateName, as in API servers.
const nameAttempts = 8

// create serves a request whose object is named in its body. The gateway itself generates names, because the name determines the cell.
func (rt *Router) create(w http.ResponseWriter, r *http.Request, c *call) {
	body, err := forward.ReadBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	mediaType := mediaTypeOf(r.Header)
	identity, err := readIdentity(mediaType, body)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	if placement.IsBootstrapToken(c.groupResource(), c.Namespace, identity.name) {
		rt.toHub(w, r)
		return
	}
	if c.APIGroup == "" && c.Resource == "bindings" && identity.name != "" && len(content.IsPathSegmentName(identity.name)) == 0 {
		rt.bind(w, r, c, identity.name, body)
		return
	}
	if identity.name != "" || identity.generateName == "" {
		// Without any name the cell does not matter: every API server refuses it alike.
		rt.createNamed(w, r, c, identity, body)
		return
	}
	for attempt := 1; ; attempt++ {
		identity.name = names.SimpleNameGenerator.GenerateName(identity.generateName)
		named, err := setName(mediaType, body, identity.name)
		if err != nil {
			forward.WriteError(w, r, err)
			return
		}
		response, err := rt.createIn(uncompressed(r), c, identity, named)
		if apierrors.IsAlreadyExists(err) && attempt < nameAttempts {
			continue
		}
		if err == nil && response.StatusCode == http.StatusConflict && attempt < nameAttempts {
			response.Body.Close()
			continue
		}
		rt.answerWrite(w, r, c, identity.name, response, err)
		return
	}
}

// bind serves the old form of pods/binding, whose object is a pod and not a Binding: it is the pod that may be moving.
func (rt *Router) bind(w http.ResponseWriter, r *http.Request, c *call, pod string, body []byte) {
	info := *c.RequestInfo
	info.Resource, info.Subresource, info.Name = "pods", "binding", pod
	info.Parts = []string{info.Resource, pod, info.Subresource}
	c.RequestInfo = &info
	info.Path = c.objectPath(pod) + "/" + info.Subresource
	clone := *r
	clone.URL = &url.URL{Path: info.Path, RawQuery: r.URL.RawQuery}
	response, err := rt.change(uncompressed(&clone), c, body)
	rt.answerWrite(w, &clone, c, pod, response, err)
}

func (rt *Router) createNamed(w http.ResponseWriter, r *http.Request, c *call, identity identity, body []byte) {
	response, err := rt.createIn(uncompressed(r), c, identity, body)
	rt.answerWrite(w, r, c, identity.name, response, err)
}

// qualified returns the resource with its group, as continue tokens and messages name it.
func (c *call) qualified() string {
	return strings.TrimPrefix(c.APIGroup+"/"+c.Resource, "/")
}
