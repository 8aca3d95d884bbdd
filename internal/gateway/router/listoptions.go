package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/placement"
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
	// passed are the topologies that were in force since the position was handed out.
	passed []*topology.View
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
	if err := rt.readToken(r.Context(), c, q); err != nil {
		return nil, err
	}
	if err := rt.readPosition(r.Context(), c, q); err != nil {
		return nil, err
	}
	q.cells = rt.asked(c)
	return q, nil
}

// readToken reads where a paged list goes on. Pages show one state of the cells, which is understood only by the map of then.
func (rt *Router) readToken(ctx context.Context, c *call, q *question) error {
	if q.Continue == "" {
		return nil
	}
	token, err := position.ParseToken(q.Continue, c.qualified(), c.Namespace)
	if err != nil {
		return apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	if token.Position != nil {
		carried, err := rt.carry(ctx, c, *token.Position)
		if err != nil {
			return err
		}
		if len(carried.Passed) > 0 && !topology.SameOwners(carried.Passed[0], c.view) {
			return expired()
		}
		token.Position = &carried.Position
	}
	q.token = &token
	return nil
}

// carry brings a position to the map in force. A position of a map that only other gateways have yet is waited for.
func (rt *Router) carry(ctx context.Context, c *call, p position.Position) (topology.Carried, error) {
	if p.Epoch > c.view.Epoch()+aheadMost {
		return topology.Carried{}, expired() // nobody has that map
	}
	if p.Epoch > c.view.Epoch() {
		waiting, cancel := context.WithTimeout(ctx, aheadWait)
		defer cancel()
		view, found := rt.Topology.Await(waiting, func(v *topology.View) bool { return v.Epoch() >= p.Epoch })
		if !found {
			return topology.Carried{}, expired()
		}
		c.view = view
	}
	carried, err := rt.Topology.Carry(p, c.view)
	if err != nil {
		return topology.Carried{}, expired()
	}
	return carried, nil
}

// aheadWait is how long a request waits for a map that another gateway has.
const aheadWait = 5 * time.Second

// aheadMost is by how many maps another gateway may be ahead of this one; a position that is further ahead was not handed out here.
const aheadMost = 16

// asked returns the cells to ask. A selection of one name, which RequestInfo has read from the field selector, is in one cell.
func (rt *Router) asked(c *call) []slots.Index {
	if c.Name != "" && c.Namespace != "" && c.placement == placement.ByName {
		route := c.view.Locate(slots.Of(c.Namespace, c.Name))
		if !route.Moving() {
			return []slots.Index{route.New}
		}
	}
	return c.view.Cells()
}

// readPosition reads the resourceVersion of the options.
func (rt *Router) readPosition(ctx context.Context, c *call, q *question) error {
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
		cells := rt.asked(c)
		if len(cells) != 1 || c.view.Map.Cells() > 1 && c.Name == "" {
			return expired()
		}
		version, _ := strconv.ParseUint(q.ResourceVersion, 10, 64)
		at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.view.Map.Cells())}
		at.Versions[cells[0]] = version
		q.at = &at
	case position.Merged:
		at, err := position.Parse(q.ResourceVersion)
		if err != nil {
			return expired()
		}
		carried, err := rt.carry(ctx, c, at)
		if err != nil {
			return err
		}
		if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact && len(carried.Passed) > 0 && !topology.SameOwners(carried.Passed[0], c.view) {
			return expired()
		}
		q.at, q.passed = &carried.Position, carried.Passed
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
