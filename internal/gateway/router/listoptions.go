package router

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/kinds"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
)

// question is a list or watch over cells.
type question struct {
	internalversion.ListOptions
	query url.Values
	// cells are those that are asked: all, or the one of the only object that is selected.
	cells []slots.Index
	// at is the position that the client gave, with a version for every cell; nil if it gave none.
	at *position.Position
	// token is where a paged list goes on.
	token *position.Token
}

// readQuestion reads the options of a list or watch. The error can be written as it is.
func (rt *Router) readQuestion(r *http.Request, c *call) (*question, error) {
	q := &question{query: r.URL.Query()}
	if len(q.query["shardSelector"]) > 0 {
		return nil, apierrors.NewBadRequest("shardSelector is not supported: this API is spread over cells by itself")
	}
	if err := scheme.ParameterCodec.DecodeParameters(q.query, metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&q.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	q.cells = rt.asked(c)
	if q.Continue != "" {
		token, err := position.ParseToken(q.Continue, c.qualified(), c.Namespace)
		if err != nil {
			return nil, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
		}
		if token.Position != nil {
			carried, err := rt.Topology.Carry(*token.Position, c.view)
			if err != nil {
				return nil, expired()
			}
			token.Position = &carried
		}
		q.token = &token
	}
	return q, rt.readPosition(c, q)
}

// asked returns the cells to ask. A selection of one name, which RequestInfo has read from the field selector, is in one cell.
func (rt *Router) asked(c *call) []slots.Index {
	if c.Name != "" && c.Namespace != "" && c.placement == kinds.ByName {
		route := c.view.Locate(slots.Of(c.Namespace, c.Name))
		if !route.Moving() {
			return []slots.Index{route.New}
		}
	}
	return c.view.Cells()
}

// readPosition reads the resourceVersion of the options.
func (rt *Router) readPosition(c *call, q *question) error {
	kind, err := position.Classify(q.ResourceVersion)
	switch {
	case errors.Is(err, position.ErrForeign):
		return expired()
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: %v", q.ResourceVersion, err))
	}
	switch kind {
	case position.Plain:
		// An object's own version says something about its cell, and nothing about others.
		if len(q.cells) != 1 || c.view.Map.Cells() > 1 && c.Name == "" {
			return expired()
		}
		version, _ := strconv.ParseUint(q.ResourceVersion, 10, 64)
		at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.view.Map.Cells())}
		at.Versions[q.cells[0]] = version
		q.at = &at
	case position.Merged:
		at, err := position.Parse(q.ResourceVersion)
		if err != nil {
			return expired()
		}
		if at, err = rt.Topology.Carry(at, c.view); err != nil {
			return expired()
		}
		q.at = &at
	}
	return nil
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the resourceVersion is too old or was not handed out here; list again and go on from there")
}

// versionFor returns the resourceVersion that stands in a cell for the client's.
func (q *question) versionFor(cell slots.Index) string {
	if q.at == nil {
		return q.ResourceVersion // "" or "0"
	}
	return strconv.FormatUint(q.at.Versions[cell], 10)
}
