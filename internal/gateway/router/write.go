package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/placement"
)

// writing is a request that changes something, whose way may have to be found more than once.
type writing interface {
	// plan finds where the request goes by the call's map. It returns errWait if the object is not to be written to now.
	plan(ctx context.Context) (leg, error)
	// content returns the body for the cell of a leg.
	content(leg) ([]byte, error)
	// absent is told that what was taken to exist does not. It reports whether that alone makes another way worth trying.
	absent() bool
}

var (
	// errWait means that the object has to be looked at again.
	errWait = errors.New("the object is on its way to another cell")
	// errUnready means that nothing can be made in the slot before the map is in force.
	errUnready = errors.New("the map is not in force yet")
)

// errUnknown answers a create whose fate is not known: it was stored, but perhaps after the cell had lost the right to it.
var errUnknown = apierrors.NewTimeoutError("the cells were rearranged while the object was being created, and it may or may not exist; look before you try again", 0)

// write sends a request until a cell that may decide about it has. Cells refuse what was sent by a map that is no longer in force, and
// changes of objects that are on their way to another cell; then the way is found anew. The error can be written as it is.
func (rt *Router) write(r *http.Request, c *call, w writing) (*http.Response, error) {
	var held hold
	defer held.end()
	ctx := r.Context()
	for {
		way, err := w.plan(ctx)
		var response *http.Response
		if err == nil {
			response, err = rt.attempt(r, c, way, w)
		}
		switch {
		case err == nil:
			return response, nil
		case errors.Is(err, errWait):
			err = held.look(ctx)
		case errors.Is(err, errUnready), errors.Is(err, errStaleMap):
			err = held.newer(ctx, rt.Topology, c)
		}
		if err != nil {
			return nil, err
		}
	}
}

// attempt sends a request on a leg. It returns errWait or errStaleMap if the answer is not the last word.
func (rt *Router) attempt(r *http.Request, c *call, way leg, w writing) (*http.Response, error) {
	body, err := w.content(way)
	if err != nil {
		return nil, err
	}
	c.leg = &way
	defer func() { c.leg = nil }()
	sent := time.Now()
	response, err := rt.insist(r, c, way.cell, body)
	if err != nil {
		return nil, err
	}
	if err = rt.judge(r.Context(), c, way, w, response, time.Since(sent)); err != nil {
		response.Body.Close()
		return nil, err
	}
	annotate(r.Context(), c.view.Name(way.cell), strconv.FormatInt(way.epoch, 10))
	return response, nil
}

// judge decides whether an answer is the last word.
func (rt *Router) judge(ctx context.Context, c *call, way leg, w writing, response *http.Response, took time.Duration) error {
	switch response.StatusCode {
	case http.StatusForbidden:
		switch refusalIn(response) {
		case fence.StaleEpoch:
			return errStaleMap
		case fence.Frozen:
			return errWait
		case fence.Absent:
			w.absent()
			return errWait
		}
	case http.StatusConflict:
		if way.pinned != "" {
			return errWait
		}
	case http.StatusNotFound:
		if w.absent() {
			return errWait
		}
		return rt.confirm(ctx, c, way.cell)
	case http.StatusCreated:
		if took < fence.Settle || c.placement == placement.Anywhere {
			return nil
		}
		err := rt.confirm(ctx, c, way.cell)
		if errors.Is(err, errStaleMap) {
			return errUnknown
		}
		return err
	}
	return nil
}

// refusalIn returns which refusal of the fence an answer is, "" if none. The answer can be read again.
func refusalIn(response *http.Response) string {
	if status := peekStatus(response); status != nil {
		return fence.RefusalIn(*status)
	}
	return ""
}

// peekStatus returns the Status that an answer is, nil if it is something else. The answer can be read again.
func peekStatus(response *http.Response) *metav1.Status {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	if err != nil {
		return nil
	}
	return readStatus(body)
}

// namedWrite is a request that changes an object named in its path.
type namedWrite struct {
	rt   *Router
	r    *http.Request
	c    *call
	body []byte

	// creates is set when it is known that the request would make the object.
	creates bool
	// inOld is set if the object was last seen in the cell it leaves.
	inOld bool
}

// plan implements writing.
func (n *namedWrite) plan(ctx context.Context) (leg, error) {
	view, slot := n.c.view, n.rt.slotOf(n.c, n.c.Name, "")
	route, settled := view.Locate(slot), view.Settled(slot)
	n.inOld = false
	if n.c.placement == placement.ByName && !route.Moving() {
		// What is to be made goes by the map in force. Anything else may go by the next one: it does not touch what is there.
		if settled {
			return leg{cell: route.New, epoch: view.Latest()}, nil
		}
		if n.creates || n.blind() {
			return leg{cell: route.New, epoch: view.Epoch()}, nil
		}
		return leg{cell: route.New, epoch: view.Latest(), existing: true}, nil
	}
	seen, err := n.rt.find(ctx, n.c)
	switch {
	case err != nil:
		return leg{}, err
	case seen.state == frozen:
		return leg{}, errWait
	case seen.state == absent && route.Moving() && !view.Ready():
		return leg{}, errUnready
	}
	way := leg{cell: seen.cell, epoch: view.Latest()}
	n.inOld = route.Moving() && seen.state == active && seen.cell == route.Old
	if !settled && (seen.state == absent || n.blind()) {
		way.epoch = view.Epoch()
	}
	if n.blind() {
		if n.inOld {
			way.pinned = seen.version
		}
		return way, nil
	}
	way.existing = n.inOld || (!settled && seen.state == active)
	return way, nil
}

// blind reports whether the cell cannot see that the object is frozen: a Scale does not have the labels of what it scales, and what
// is made beneath an object has none at all.
func (n *namedWrite) blind() bool { return n.c.Subresource == "scale" || n.c.Verb == "create" }

// content implements writing.
func (n *namedWrite) content(way leg) ([]byte, error) {
	body, err := n.rt.rewriteBody(bodyKind(n.c), n.r.Header.Get("Content-Type"), n.body, n.c.view, way.cell)
	if err != nil || way.pinned == "" || n.c.Verb == "create" {
		return body, err
	}
	return pin(mediaTypeOf(n.r.Header), body, way.pinned)
}

// absent implements writing.
func (n *namedWrite) absent() bool {
	n.creates = true
	return n.inOld
}

// newWrite is a request that makes an object named in its body.
type newWrite struct {
	rt       *Router
	r        *http.Request
	c        *call
	identity identity
	body     []byte
}

// plan implements writing. An object that has not left the cell it moves from exists.
func (n *newWrite) plan(ctx context.Context) (leg, error) {
	view, slot := n.c.view, n.rt.slotOf(n.c, n.identity.name, n.identity.slot)
	route := view.Locate(slot)
	if n.c.placement == placement.Anywhere {
		return leg{cell: route.New, epoch: view.Latest()}, nil
	}
	way := leg{cell: route.New, epoch: view.Epoch()}
	if view.Settled(slot) {
		way.epoch = view.Latest()
	}
	if !route.Moving() || n.identity.name == "" {
		return way, nil
	}
	if !view.Ready() {
		return leg{}, errUnready
	}
	seen, err := n.rt.look(ctx, n.c, route.Old, n.identity.name)
	if err == nil && seen.state != absent {
		err = apierrors.NewAlreadyExists(n.c.groupResource(), n.identity.name)
	}
	return way, err
}

// content implements writing.
func (n *newWrite) content(way leg) ([]byte, error) {
	return n.rt.rewriteBody(bodyKind(n.c), n.r.Header.Get("Content-Type"), n.body, n.c.view, way.cell)
}

// absent implements writing: that something is missing for an object to be made is the last word.
func (n *newWrite) absent() bool { return false }
