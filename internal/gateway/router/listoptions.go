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

// query holds the options of a list or watch over cells.
type query struct {
	internalversion.ListOptions
	values url.Values
	// cells are the cells to ask: all, or the one of the only object that is selected.
	cells []slots.Index
	// at is the client's position, with a version for every cell; nil if it gave none.
	at *position.Position
	// passed are the topologies since the position was issued, before the present one.
	passed []*topology.View
	// token is where a paged list continues.
	token *position.Token
}

// readQuery reads the options of a list or watch. The error can be written as it is.
func (rt *Router) readQuery(r *http.Request, c *call) (*query, error) {
	q := &query{values: r.URL.Query()}
	if len(q.values["shardSelector"]) > 0 {
		return nil, apierrors.NewBadRequest("shardSelector is not supported: the gateway distributes objects over cells itself")
	}
	if err := scheme.ParameterCodec.DecodeParameters(q.values, metav1.SchemeGroupVersion, &q.ListOptions); err != nil {
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

// readToken reads where a paged list continues. All pages show one state of the cells, which only a topology with the same owners can
// read.
func (rt *Router) readToken(ctx context.Context, c *call, q *query) error {
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

// carry carries a position forward to the call's view. If another gateway issued it by a later view, it waits for that.
func (rt *Router) carry(ctx context.Context, c *call, p position.Position) (topology.Carried, error) {
	if p.Epoch > c.view.Epoch()+aheadMost {
		return topology.Carried{}, expired() // no gateway can be that far ahead
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

// aheadWait is how long a request waits for a view that another gateway has.
const aheadWait = 5 * time.Second

// aheadMost is by how many epochs another gateway may be ahead of this one.
const aheadMost = 16

// asked returns the cells to ask. RequestInfo has read the name from a field selector that selects one object, which is in one cell.
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
func (rt *Router) readPosition(ctx context.Context, c *call, q *query) error {
	kind, err := position.Classify(q.ResourceVersion)
	switch {
	case errors.Is(err, position.ErrForeign):
		return expired()
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: %v", q.ResourceVersion, err))
	}
	switch kind {
	case position.Plain:
		// An object's own version is a position in its cell only.
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
	return apierrors.NewResourceExpired("the resourceVersion is too old or was not issued by this API; list again and continue from there")
}

// versionFor translates the client's resourceVersion for a cell.
func (q *query) versionFor(cell slots.Index) string {
	if q.at == nil {
		return q.ResourceVersion // "" or "0"
	}
	return strconv.FormatUint(q.at.Versions[cell], 10)
}
