package router

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/warning"

	"github.com/cellplane/cellplane/internal/slots"
)

// PartialHeader with the value "true" asks for an incomplete list, with a warning, if a cell cannot be reached.
const PartialHeader = "Cellplane-Partial"

// listRequests are the requests of one list to its cells.
type listRequests struct {
	rt      *Router
	r       *http.Request // for the cells
	c       *call
	q       *query
	partial bool

	mu        sync.Mutex
	responses map[slots.Index]*http.Response
	missing   []error // of cells that a partial list leaves out
}

func newListRequests(rt *Router, r *http.Request, c *call, q *query, accept string) *listRequests {
	request := r.Clone(r.Context())
	request.Header.Set("Accept", accept)
	request.Header.Del("Accept-Encoding") // compressed lists cannot be merged
	return &listRequests{rt: rt, r: request, c: c, q: q, partial: r.Header.Get(PartialHeader) == "true", responses: map[slots.Index]*http.Response{}}
}

// ask lists cells concurrently. A partial list continues without those that cannot be reached.
func (l *listRequests) ask(cells []slots.Index) (listed []slots.Index, missing, err error) {
	group, ctx := errgroup.WithContext(l.r.Context())
	for _, cell := range cells {
		group.Go(func() error {
			response, err := l.rt.askList(ctx, l.r, l.c, cell, l.q.listQuery(l.c, cell))
			l.mu.Lock()
			defer l.mu.Unlock()
			switch {
			case response != nil && err == nil:
				l.responses[cell] = response
			case l.partial && isUnreachable(err):
				l.missing = append(l.missing, err)
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for _, cell := range cells {
		if l.responses[cell] != nil {
			listed = append(listed, cell)
		}
	}
	if len(l.missing) > 0 {
		missing = l.missing[0]
	}
	return listed, missing, nil
}

// answers returns the answers in the order of the cells.
func (l *listRequests) answers(cells []slots.Index) *answers {
	a := &answers{}
	for _, cell := range cells {
		if response := l.responses[cell]; response != nil {
			a.cells, a.responses = append(a.cells, cell), append(a.responses, response)
		}
	}
	for _, err := range l.missing {
		warning.AddWarning(l.r.Context(), "", "the list is incomplete: "+err.Error())
	}
	return a
}

func (l *listRequests) close() {
	for _, response := range l.responses {
		response.Body.Close()
	}
}

func isUnreachable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)
}

// askList lists one cell, and waits for a definition that has not reached it yet. The body is read after the group has ended, so it
// belongs to the request's context and not to the group's.
func (rt *Router) askList(group context.Context, r *http.Request, c *call, cell slots.Index, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
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
func (q *query) remaining() []slots.Index {
	if q.token == nil {
		return q.cells
	}
	cells := slices.DeleteFunc(slices.Clone(q.cells), func(cell slots.Index) bool { return slices.Contains(q.token.Drained, int(cell)) })
	if len(cells) == 0 {
		return q.cells[:1] // one cell has to return the empty list
	}
	return cells
}

// listQuery returns the query for a cell.
func (q *query) listQuery(c *call, cell slots.Index) url.Values {
	query := url.Values{}
	for key, values := range q.values {
		query[key] = values
	}
	if q.values.Get("includeObject") == "None" {
		query["includeObject"] = []string{"Metadata"} // rows without objects cannot be sorted
	}
	if q.token != nil {
		var version uint64
		if q.token.Position != nil {
			version = q.token.Position.Versions[cell]
		}
		query["continue"] = []string{q.token.ForCell(version)}
		return query
	}
	if c.view.Moving() && !q.isPast() {
		// Watch caches of several cells may show states that do not fit together.
		delete(query, "resourceVersion")
		delete(query, "resourceVersionMatch")
		return query
	}
	delete(query, "resourceVersion")
	if version := q.versionFor(cell); version != "" {
		query["resourceVersion"] = []string{version}
	}
	if q.at != nil && q.at.Versions[cell] == 0 {
		delete(query, "resourceVersionMatch") // the position has no version for the cell, so any state will do
	}
	return query
}
