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
	"k8s.io/utils/ptr"

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
	// after is the version of the object after whose change a watch begins; nil if it does not begin with one. If unsampled is set, no
	// position is known for it.
	after     *position.Version
	unsampled bool
	// latest is set if at has the version of an object only: other cells show their latest state.
	latest bool
	// passed are the topologies since the position was issued, before the present one.
	passed []*topology.View
	// token is where a paged list continues.
	token *position.Token
}

// readQuery reads the options of a list or watch. The error can be written as it is.
func (rt *Router) readQuery(r *http.Request, c *call) (*query, error) {
	q := &query{values: r.URL.Query()}
	if err := refuseShards(q.values); err != nil {
		return nil, err
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

// refuseShards refuses a list or watch of a part of the objects. A control plane that ignored the option would show all of them to everybody who
// asks for a part.
func refuseShards(query url.Values) error {
	if len(query["shardSelector"]) > 0 {
		return apierrors.NewBadRequest("shardSelector is not supported: the gateway distributes objects over cells itself")
	}
	return nil
}

// readToken reads where a paged list continues. All pages show one state of the cells, which is read by the topology of the first page.
func (rt *Router) readToken(ctx context.Context, c *call, q *query) error {
	if q.Continue == "" {
		return nil
	}
	token, err := position.ParseToken(q.Continue, c.qualified(), c.Namespace)
	if err != nil {
		return apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	if token.Position != nil {
		if err := rt.await(ctx, c, token.Position.Epoch); err != nil {
			return expiredPage(token)
		}
		if past := rt.Topology.Past(token.Position.Epoch, c.view); past != nil {
			c.view = past
		}
		carried, err := rt.Topology.Carry(*token.Position, c.view)
		if err != nil || len(carried.Passed) > 0 && !topology.SameOwners(carried.Passed[0], c.view) {
			return expiredPage(token)
		}
		carried.Versions = c.fit(carried.Versions)
		token.Position = &carried.Position
	}
	q.token = &token
	return nil
}

// carry carries a position forward to the call's view. If another gateway issued it by a later view, it waits for that.
func (rt *Router) carry(ctx context.Context, c *call, p position.Position) (topology.Carried, error) {
	if err := rt.await(ctx, c, p.Epoch); err != nil {
		return topology.Carried{}, err
	}
	carried, err := rt.Topology.Carry(p, c.view)
	if err != nil {
		return topology.Carried{}, expired()
	}
	carried.Versions = c.fit(carried.Versions)
	return carried, nil
}

// await waits for a view of an epoch or a later one, if another gateway has it.
func (rt *Router) await(ctx context.Context, c *call, epoch int64) error {
	if epoch > c.view.Epoch()+aheadMost {
		return expired() // no gateway can be that far ahead
	}
	if epoch > c.view.Epoch() {
		waiting, cancel := context.WithTimeout(ctx, aheadWait)
		defer cancel()
		view, found := rt.Topology.Await(waiting, func(v *topology.View) bool { return v.Epoch() >= epoch })
		if !found {
			return expired()
		}
		c.view = view
	}
	return nil
}

// aheadWait is how long a request waits for a view that another gateway has.
const aheadWait = 5 * time.Second

// aheadMost is by how many epochs another gateway may be ahead of this one.
const aheadMost = 16

// asked returns the cells to ask, with the hub for kinds that it has too. RequestInfo has read the name from a field selector that selects
// one object, which is in one cell.
func (rt *Router) asked(c *call) []slots.Index {
	if c.Name != "" && c.Namespace != "" && c.placement == placement.ByName {
		route := c.view.Locate(slots.Of(c.Namespace, c.Name))
		if !route.Moving() {
			return []slots.Index{route.New}
		}
	}
	return c.places()
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
		at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.width())}
		at.Versions[cells[0]] = version
		q.at = &at
	case position.Object:
		return rt.readVersion(ctx, c, q)
	case position.Merged:
		at, err := position.Parse(q.ResourceVersion)
		if err != nil {
			return expired()
		}
		carried, err := rt.carry(ctx, c, at)
		if err != nil {
			return err
		}
		if q.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
			if len(carried.Passed) > 0 && !topology.SameOwners(carried.Passed[0], c.view) {
				return expired()
			}
			c.view = rt.Topology.Past(c.view.Epoch(), c.view)
		}
		q.at, q.passed = &carried.Position, carried.Passed
	}
	return nil
}

// readVersion reads the version of an object as the resourceVersion of the options.
func (rt *Router) readVersion(ctx context.Context, c *call, q *query) error {
	v, err := position.ParseVersion(q.ResourceVersion)
	if err != nil {
		return expired()
	}
	cell, found := c.numbered(v.Cell)
	asked := rt.asked(c)
	only := found && len(asked) == 1 && asked[0] == cell
	switch watches := c.Verb == "watch" && !ptr.Deref(q.SendInitialEvents, false); {
	case watches && !only:
		q.after = &v
		at, known := rt.sampled(c, v)
		if !known {
			q.unsampled = true
			return nil
		}
		carried, err := rt.carry(ctx, c, at)
		if err != nil {
			return err
		}
		q.at, q.passed = &carried.Position, carried.Passed
		return nil
	case !found, !only && q.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		return expired()
	}
	at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.width())}
	at.Versions[cell] = v.Revision
	q.at, q.latest = &at, true
	return nil
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the resourceVersion is too old or was not issued by this API; list again and continue from there")
}

// expiredPage refuses a continue token whose state cannot be read any more. As in Kubernetes, the error has a token with which the client
// can continue after the same key with the latest state.
func expiredPage(token position.Token) *apierrors.StatusError {
	token.Position, token.Drained = nil, nil // cells may have got further items
	latest, err := token.Encode()
	if err != nil {
		return expired()
	}
	status := apierrors.NewResourceExpired("the continue token is too old for a consistent list; list again without it, or continue " +
		"with the token in this answer, which shows the latest state of the remaining objects")
	status.ErrStatus.Continue = latest
	return status
}

// versionFor translates the client's resourceVersion for a cell.
func (q *query) versionFor(cell slots.Index) string {
	switch {
	case q.at == nil:
		return q.ResourceVersion // "" or "0"
	case q.latest && q.at.Versions[cell] == 0:
		return ""
	}
	return strconv.FormatUint(q.at.Versions[cell], 10)
}
