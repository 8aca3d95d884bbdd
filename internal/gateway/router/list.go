package router

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// list serves a list over cells.
func (rt *Router) list(w http.ResponseWriter, r *http.Request, c *call) {
	var held heldRequest
	defer held.end()
	collection := routing.NewCollection(routing.NewFirst, bounds)
	for {
		action, err := rt.listOnce(w, r, c, &collection)
		if err == nil && action.Kind == routing.AwaitView {
			if err = rt.nextView(r.Context(), c, &collection, action, &held); err == nil {
				continue
			}
		}
		if err != nil {
			forward.WriteError(w, r, err)
		}
		return
	}
}

// listOnce serves a list by the present view, unless the action is AwaitView. If there is an error, it has written nothing.
func (rt *Router) listOnce(w http.ResponseWriter, r *http.Request, c *call, collection *routing.Collection) (action routing.Action, err error) {
	q, err := rt.readQuery(r, c)
	if err != nil {
		return action, err
	}
	accept, yaml, err := acceptable(r)
	if err != nil {
		return action, err
	}
	cells := q.remaining()
	requests := newListRequests(rt, r, c, q, accept)
	defer requests.close()
	action, err = rt.driveList(r.Context(), c, collection, collection.Start(&c.view.View, cells, q.isPast()), requests.ask)
	if isUnreachable(err) && q.token != nil && c.view.Epoch() < rt.Topology.View().Epoch() {
		return action, expiredPage(*q.token) // a cell of the first page may have left
	}
	if err != nil || action.Kind != routing.Serve {
		return action, err
	}
	rt.warnWithoutLease(w, c)
	answers := requests.answers(cells)
	if refused := answers.refused(); refused != nil {
		if refused.StatusCode == http.StatusGone && q.token != nil {
			return action, expiredPage(*q.token)
		}
		forward.Answer(w, refused)
		return action, nil
	}
	form, err := answers.form()
	if err != nil {
		return action, apierrors.NewInternalError(err)
	}
	form.yaml = yaml
	annotate(r.Context(), "all", strconv.FormatInt(c.view.Epoch(), 10))
	rt.merge(w, r, c, q, answers, form)
	return action, nil
}

// listFunc lists cells. It returns those that have answered, and an error of the others if the list may do without them.
type listFunc func([]slots.Index) (listed []slots.Index, missing, err error)

// driveList performs the actions of a collection up to Serve or AwaitView.
func (rt *Router) driveList(ctx context.Context, c *call, collection *routing.Collection, action routing.Action, list listFunc) (routing.Action, error) {
	var failure error
	for {
		var in routing.Input
		var err error
		switch action.Kind {
		case routing.List:
			var missing error
			if in.Listed, missing, err = list(action.Cells); missing != nil && failure == nil {
				failure = missing
			}
		case routing.ConfirmAll:
			in.Stale, err = isStale(rt.confirmAll(ctx, c, action.Cells))
		case routing.Fail:
			return action, failure
		case routing.Refuse:
			return action, refusalFor(c, action.Reason, "")
		default:
			return action, nil
		}
		if err != nil {
			return action, err
		}
		action = collection.Step(time.Now(), in)
	}
}

// nextView waits for the view that a collection needs.
func (rt *Router) nextView(ctx context.Context, c *call, collection *routing.Collection, action routing.Action, held *heldRequest) error {
	if held.awaitView(ctx, rt.Topology, c, action.Deadline) {
		return nil
	}
	return refusalFor(c, collection.Step(time.Now(), routing.Input{}).Reason, "")
}

// isPast reports whether a list shows a past state, which does not change.
func (q *query) isPast() bool {
	return (q.token != nil && q.token.Position != nil) || q.ResourceVersionMatch == metav1.ResourceVersionMatchExact
}

// confirmAll confirms the answers of several cells.
func (rt *Router) confirmAll(ctx context.Context, c *call, cells []slots.Index) error {
	var group errgroup.Group
	for _, cell := range cells {
		group.Go(func() error { return rt.confirm(ctx, c, cell) })
	}
	return group.Wait()
}
