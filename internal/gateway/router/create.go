package router

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/storage/names"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
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
		response, err := rt.exchange(r, c, rt.cellFor(c, identity), named)
		if err != nil {
			forward.WriteError(w, r, err)
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
	cell := rt.cellFor(c, identity)
	body, err := rt.rewriteBody(splice.ObjectBody, r.Header.Get("Content-Type"), body, c.view, cell)
	if err != nil {
		forward.WriteError(w, r, asStatus(err, c))
		return
	}
	rt.send(w, r, c, cell, body)
}

// cellFor returns the cell in which an object is made: that of the slot it carries as a hint, that of its template if it is a binding,
// or else that of its name.
func (rt *Router) cellFor(c *call, identity identity) slots.Index {
	slot := slots.Of(c.Namespace, identity.name)
	if hinted, ok := rt.hintedSlot(c, identity.name, identity.slot); ok {
		slot = hinted
	}
	return c.view.Locate(slot).New
}

// qualified returns a resource as tokens and messages name it.
func (c *call) qualified() string {
	return strings.TrimPrefix(c.APIGroup+"/"+c.Resource, "/")
}
