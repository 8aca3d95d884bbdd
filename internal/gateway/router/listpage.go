package router

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// finish returns the metadata of a merged list. The page has left out so many objects that moves have left behind.
func (rt *Router) finish(r *http.Request, c *call, q *query, a *answers, page splice.Page, dropped int) (splice.Metadata, error) {
	at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.width())}
	if q.token != nil && q.token.Position != nil {
		at = *q.token.Position // every page shows the state of the first one, or of the first one after a state that has expired
	} else {
		for cell, least := range c.view.Left() {
			at.Versions[cell] = least
		}
		for i, version := range page.Versions {
			n, err := strconv.ParseUint(version, 10, 64)
			if err != nil {
				return splice.Metadata{}, &splice.SourceError{Source: i, Err: fmt.Errorf("invalid resourceVersion of a list: %.40q", version)}
			}
			at.Versions[a.cells[i]] = n
		}
	}
	version, err := at.Encode()
	if err != nil {
		return splice.Metadata{}, err
	}
	if rt.issued != nil && !q.isPast() {
		rt.issued.note(version, time.Now())
	}
	metadata := splice.Metadata{ResourceVersion: version, Remaining: -1}
	if !page.More {
		return metadata, nil
	}
	token := position.Token{Resource: c.qualified(), Namespace: c.Namespace, Position: &at, After: page.Last, Drained: drained(q, a, page)}
	if token.After == "" && q.token != nil {
		token.After = q.token.After
	}
	if page.Remaining >= 0 && !q.selects() {
		if token.Hidden = rt.hidden(r, c, q, a, token, dropped); token.Hidden >= 0 {
			metadata.Remaining = max(page.Remaining-int64(token.Hidden), 0)
		}
	}
	metadata.Continue, err = token.Encode()
	return metadata, err
}

// drained returns the cells that have no further items, including those of earlier pages.
func drained(q *query, a *answers, page splice.Page) []int {
	var done []int
	if q.token != nil {
		done = append(done, q.token.Drained...)
	}
	for _, source := range page.Drained {
		done = append(done, int(a.cells[source]))
	}
	slices.Sort(done)
	return slices.Compact(done)
}
