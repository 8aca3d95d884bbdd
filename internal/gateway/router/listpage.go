package router

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/splice"
)

// finish returns the metadata of a merged list.
func (rt *Router) finish(c *call, q *query, a *answers, page splice.Page) (splice.Metadata, error) {
	at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.view.Map.Cells())}
	if q.token != nil && q.token.Position != nil {
		at = *q.token.Position // every page shows the state of the first one
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
	metadata := splice.Metadata{ResourceVersion: version, Remaining: -1}
	if !page.More {
		return metadata, nil
	}
	if q.LabelSelector == nil || q.LabelSelector.Empty() {
		if q.FieldSelector == nil || q.FieldSelector.Empty() {
			metadata.Remaining = page.Remaining
		}
	}
	token := position.Token{Resource: c.qualified(), Namespace: c.Namespace, Position: &at, After: page.Last, Drained: drained(q, a, page)}
	if token.After == "" && q.token != nil {
		token.After = q.token.After
	}
	if q.token != nil && q.token.Position == nil {
		token.Position = nil
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
