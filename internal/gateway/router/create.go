package router

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/cellplane/cellplane/internal/gateway/forward"
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

func (rt *Router) createNamed(w http.ResponseWriter, r *http.Request, c *call, identity identity, body []byte) {
	response, err := rt.createIn(uncompressed(r), c, identity, body)
	rt.answerWrite(w, r, c, identity.name, response, err)
}

// qualified returns the resource with its group, as continue tokens and messages name it.
func (c *call) qualified() string {
	return strings.TrimPrefix(c.APIGroup+"/"+c.Resource, "/")
}
