package router

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
)

// list serves a list over cells.
func (rt *Router) list(w http.ResponseWriter, r *http.Request, c *call) {
	var held hold
	defer held.end()
	for {
		err := rt.listOnce(w, r, c)
		if errors.Is(err, errStaleMap) {
			err = held.newer(r.Context(), rt.Topology, c)
			if err == nil {
				continue
			}
		}
		if err != nil {
			forward.WriteError(w, r, err)
		}
		return
	}
}

// listOnce serves a list by the map at hand. It returns an error if it has not written anything, which is errStaleMap if the map is no
// longer in force.
func (rt *Router) listOnce(w http.ResponseWriter, r *http.Request, c *call) error {
	q, err := rt.readQuestion(r, c)
	if err != nil {
		return err
	}
	accept, yaml, err := acceptable(r)
	if err != nil {
		return err
	}
	answers, err := rt.askAll(r, c, q, accept)
	if err != nil {
		return err
	}
	defer answers.close()
	if !q.isOfThen() {
		if err := rt.confirmAll(r.Context(), c, answers.cells); err != nil {
			return err
		}
	}
	if refused := answers.refused(); refused != nil {
		forward.Answer(w, refused)
		return nil
	}
	form, err := answers.form()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	form.yaml = yaml
	annotate(r.Context(), "all", strconv.FormatInt(c.view.Epoch(), 10))
	rt.merge(w, r, c, q, answers, form)
	return nil
}

// isOfThen reports whether a list shows a state of the past, which is as it is.
func (q *question) isOfThen() bool {
	return (q.token != nil && q.token.Position != nil) || q.ResourceVersionMatch == metav1.ResourceVersionMatchExact
}

// confirmAll confirms what cells have answered.
func (rt *Router) confirmAll(ctx context.Context, c *call, cells []slots.Index) error {
	var group errgroup.Group
	for _, cell := range cells {
		group.Go(func() error { return rt.confirm(ctx, c, cell) })
	}
	return group.Wait()
}
