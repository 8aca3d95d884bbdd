package router

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

const (
	// hiddenMost is how many objects a cell may have that moves have left behind, so that a list still tells how many objects remain.
	hiddenMost = 1000
	// maxHidden limits the answer of a cell with their metadata.
	maxHidden = 8 << 20

	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// selects reports whether the list does not show all objects. Then it is not known how many remain.
func (q *query) selects() bool {
	return q.LabelSelector != nil && !q.LabelSelector.Empty() || q.FieldSelector != nil && !q.FieldSelector.Empty()
}

// hidden returns how many of the objects that remain in the cells after a page the list will not show, since moves have left them behind; −1
// if that is not known. The first page counts them, and its token takes the number to the next ones.
func (rt *Router) hidden(r *http.Request, c *call, q *query, a *answers, after position.Token, dropped int) int {
	if q.token != nil && q.token.Position != nil {
		if q.token.Hidden < 0 {
			return -1
		}
		return max(q.token.Hidden-dropped, 0)
	}
	if c.placement != placement.ByName || !c.view.Moving() && !c.view.Leftovers {
		return 0
	}
	hidden, err := rt.countHidden(r, c, a, after)
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("cannot count what moves have left behind; the list does not tell how many objects remain", "resource", c.qualified(), "err", err)
		return -1
	}
	return hidden
}

// countHidden reads the objects with the label of moves after a page.
func (rt *Router) countHidden(r *http.Request, c *call, a *answers, after position.Token) (int, error) {
	var mu sync.Mutex
	copies := map[string][]routing.Copy{}
	group, ctx := errgroup.WithContext(r.Context())
	for _, cell := range a.cells {
		group.Go(func() error {
			list, err := rt.listLabelled(ctx, r, c, cell, after.ForCell(after.Position.Versions[cell]))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range list.Items {
				item := &list.Items[i]
				key := item.Namespace + "/" + item.Name
				copies[key] = append(copies[key], routing.Copy{
					Cell: cell, Label: item.Labels[names.RebalanceStatusLabel], CopiedAt: item.Annotations[names.CopiedAtAnnotation],
				})
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return hiddenOf(&c.view.View, copies, after.Position.Versions), nil
}

// hiddenOf returns how many of the copies with the label of moves a list does not show, which shows the cells at some versions. They are all
// of their keys: what is shown instead of a copy has the label too, or is not among them.
func hiddenOf(view *routing.View, copies map[string][]routing.Copy, versions []uint64) int {
	hidden := 0
	for key, of := range copies {
		var owned []routing.Copy
		for _, candidate := range of {
			if view.Owns(candidate.Cell, slotOfKey(key)) {
				owned = append(owned, candidate)
			}
		}
		if hidden += len(of); view.Shown(view.Locate(slotOfKey(key)).New, owned, versions) >= 0 {
			hidden--
		}
	}
	return hidden
}

// listLabelled reads the metadata of the objects of a cell with the label of moves, from where a list continues.
func (rt *Router) listLabelled(ctx context.Context, r *http.Request, c *call, cell slots.Index, from string) (*metav1.PartialObjectMetadataList, error) {
	request := r.Clone(ctx)
	request.Header.Set("Accept", metadataOnly)
	request.Header.Del("Accept-Encoding")
	response, err := rt.ask(ctx, request, c, cell, url.Values{
		"labelSelector": {names.RebalanceStatusLabel}, "limit": {strconv.Itoa(hiddenMost)}, "continue": {from},
	}, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, statusOf(response)
	}
	body, err := readAnswer(ctx, response, maxHidden)
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decoding a list of %s: %w", c.view.Name(cell), err)
	}
	if list.Continue != "" {
		return nil, fmt.Errorf("%s has more than %d", c.view.Name(cell), hiddenMost)
	}
	return &list, nil
}
