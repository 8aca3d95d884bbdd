package router

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// nameAttempts is how many names are tried for an object that leaves it to the server: as many as API servers try.
const nameAttempts = 8

// create serves a request whose object is named in its body. A name to be generated is generated here, as it decides about the cell.
func (rt *Router) create(w http.ResponseWriter, r *http.Request, c *call) {
	body, err := readBody(r)
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
		// Without any name the object goes anywhere: every API server refuses it alike.
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
		response, err := rt.write(r, c, &newWrite{rt: rt, r: r, c: c, identity: identity, body: named})
		if apierrors.IsAlreadyExists(err) && attempt < nameAttempts {
			continue
		}
		if err != nil {
			forward.WriteError(w, r, asStatus(err, c))
			return
		}
		if response.StatusCode == http.StatusConflict && attempt < nameAttempts {
			response.Body.Close()
			continue
		}
		defer response.Body.Close()
		forward.Answer(w, response)
		return
	}
}

func (rt *Router) createNamed(w http.ResponseWriter, r *http.Request, c *call, identity identity, body []byte) {
	response, err := rt.write(r, c, &newWrite{rt: rt, r: r, c: c, identity: identity, body: body})
	if err != nil {
		forward.WriteError(w, r, asStatus(err, c))
		return
	}
	defer response.Body.Close()
	forward.Answer(w, response)
}

// qualified returns a resource as tokens and messages name it.
func (c *call) qualified() string {
	return strings.TrimPrefix(c.APIGroup+"/"+c.Resource, "/")
}
