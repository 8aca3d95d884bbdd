package router

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/warning"

	"github.com/cellplane/cellplane/internal/slots"
)

// PartialHeader with the value "true" asks for what there is of a list even if a cell cannot be reached. The answer then has a warning.
const PartialHeader = "Cellplane-Partial"

// askAll asks the cells concurrently; while objects move, each cell that they move to before the one they come from. Then an object that
// is not in the answer of the one is in that of the other. The error can be written as it is.
func (rt *Router) askAll(r *http.Request, c *call, q *question, accept string) (*answers, error) {
	cells := q.remaining()
	partial := r.Header.Get(PartialHeader) == "true"
	responses := make([]*http.Response, len(cells))
	failures := make([]error, len(cells))
	request := r.Clone(r.Context())
	request.Header.Set("Accept", accept)
	request.Header.Del("Accept-Encoding") // what is to be merged must not be compressed
	ask := func(stage []int) error {
		group, ctx := errgroup.WithContext(r.Context())
		for _, i := range stage {
			group.Go(func() (err error) {
				responses[i], err = rt.askList(ctx, r.Context(), request, c, cells[i], q.listQuery(c, cells[i]))
				failures[i] = err
				if partial && isUnreachable(err) {
					return nil
				}
				return err
			})
		}
		return group.Wait()
	}
	var err error
	for _, stage := range stagesOf(c, cells) {
		if err = ask(stage); err != nil {
			break
		}
	}
	a := &answers{}
	for i, response := range responses {
		if response != nil {
			a.cells, a.responses = append(a.cells, cells[i]), append(a.responses, response)
		} else if err == nil {
			warning.AddWarning(r.Context(), "", "the list is incomplete: "+failures[i].Error())
		}
	}
	if err == nil && len(a.responses) == 0 {
		err = failures[0]
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// stagesOf puts cells into the order in which they are asked, each by its place in the list.
func stagesOf(c *call, cells []slots.Index) [][]int {
	if !c.view.Moving() {
		all := make([]int, len(cells))
		for i := range cells {
			all[i] = i
		}
		return [][]int{all}
	}
	of := c.view.Stages()
	stages := make([][]int, slices.Max(of)+1)
	for i, cell := range cells {
		stages[of[cell]] = append(stages[of[cell]], i)
	}
	return stages
}

func isUnreachable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)
}

// askList asks one cell, and waits for a definition that has not reached it yet. The answer is read after the others have come, so that
// it belongs to the request's context and not to the group's.
func (rt *Router) askList(group, request context.Context, r *http.Request, c *call, cell slots.Index, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request)
	stop := context.AfterFunc(group, cancel)
	response, err := rt.ask(ctx, r, c, cell, query, nil)
	if err == nil && response.StatusCode == http.StatusNotFound {
		clone := *r
		clone.URL = &url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
		response.Body.Close()
		response, err = rt.insist(clone.WithContext(ctx), c, cell, nil)
	}
	if err != nil || !stop() {
		cancel()
	}
	return response, err
}

// remaining returns the cells that may have something on this page.
func (q *question) remaining() []slots.Index {
	if q.token == nil {
		return q.cells
	}
	cells := slices.DeleteFunc(slices.Clone(q.cells), func(cell slots.Index) bool { return slices.Contains(q.token.Drained, int(cell)) })
	if len(cells) == 0 {
		return q.cells[:1] // somebody has to make the empty list
	}
	return cells
}

// listQuery returns the query for a cell.
func (q *question) listQuery(c *call, cell slots.Index) url.Values {
	query := url.Values{}
	for key, values := range q.query {
		query[key] = values
	}
	if q.query.Get("includeObject") == "None" {
		query["includeObject"] = []string{"Metadata"} // rows without objects cannot be put in order
	}
	if q.token != nil {
		var version uint64
		if q.token.Position != nil {
			version = q.token.Position.Versions[cell]
		}
		query["continue"] = []string{q.token.ForCell(version)}
		return query
	}
	if c.view.Moving() && !q.isOfThen() {
		// What caches remember of several cells need not fit together.
		delete(query, "resourceVersion")
		delete(query, "resourceVersionMatch")
		return query
	}
	if version := q.versionFor(cell); version != "" {
		query["resourceVersion"] = []string{version}
	}
	if q.at != nil && q.at.Versions[cell] == 0 {
		delete(query, "resourceVersionMatch") // nothing of the cell was seen, so that anything will do
	}
	return query
}
