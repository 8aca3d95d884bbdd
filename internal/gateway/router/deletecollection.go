package router

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fence"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// deleteCollection deletes in all cells. It is as little atomic as in one API server: what has been deleted stays so when a cell fails.
func (rt *Router) deleteCollection(w http.ResponseWriter, r *http.Request, c *call) {
	q, err := rt.readQuestion(r, c)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	if q.Limit > 0 || q.token != nil || c.view.Moving() {
		// Objects that move are deleted one by one, wherever they are by then.
		rt.deletePage(w, r, c)
		return
	}
	body, err := readBody(r)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	var held hold
	defer held.end()
	for {
		err := rt.deleteOnce(w, r, c, q, body)
		if errors.Is(err, errStaleMap) {
			if err = held.newer(r.Context(), rt.Topology, c); err == nil && c.view.Moving() {
				r.Body = io.NopCloser(bytes.NewReader(body))
				rt.deletePage(w, r, c)
				return
			}
			if err == nil {
				q, err = rt.readQuestion(r, c)
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			forward.WriteError(w, r, asStatus(err, c))
		}
		return
	}
}

// deleteOnce deletes by the map at hand. It returns errStaleMap if the map is no longer in force, so that something may have been missed.
func (rt *Router) deleteOnce(w http.ResponseWriter, r *http.Request, c *call, q *question, body []byte) error {
	answers := make([][]byte, len(q.cells))
	var group errgroup.Group
	for i, cell := range q.cells {
		group.Go(func() (err error) {
			answers[i], err = rt.deleteIn(r, c, q, cell, body)
			if fence.Refusal(err) == fence.StaleEpoch {
				return errStaleMap
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := rt.confirmAll(r.Context(), c, q.cells); err != nil {
		return err
	}
	rt.answerDeleted(w, r, c, q, answers)
	return nil
}

func (rt *Router) deleteIn(r *http.Request, c *call, q *question, cell slots.Index, body []byte) ([]byte, error) {
	body, err := rt.rewriteBody(splice.DeleteOptionsBody, r.Header.Get("Content-Type"), body, c.view, cell)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for key, values := range q.query {
		query[key] = values
	}
	if q.at != nil {
		query["resourceVersion"] = []string{q.versionFor(cell)}
	}
	query.Set("labelSelector", strings.TrimPrefix(query.Get("labelSelector")+",!"+names.RebalanceStatusLabel, ",")) // what moves have left behind stays
	request := r.Clone(r.Context())
	request.Header.Set("Accept", "application/json")
	request.Header.Del("Accept-Encoding")
	request.URL.RawQuery = query.Encode()
	response, err := rt.insist(request, c, cell, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, statusOf(response)
	}
	return readAnswer(response, rt.maxList)
}

// answerDeleted answers with the list of what has been deleted, as API servers do, to clients that take JSON; others and those whose
// list cannot be made get a success.
func (rt *Router) answerDeleted(w http.ResponseWriter, r *http.Request, c *call, q *question, answers [][]byte) {
	annotate(r.Context(), "all", strconv.FormatInt(c.view.Epoch(), 10))
	accept, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if f, ok := formOf(accept); accept == "" || accept == "*/*" || (ok && f.encoding == splice.JSON && !strings.Contains(accept, "as=")) {
		readers := make([]io.Reader, len(answers))
		for i, answer := range answers {
			readers[i] = bytes.NewReader(answer)
		}
		var merged bytes.Buffer
		_, err := splice.MergeJSON(&merged, readers, splice.ListOptions{
			Choose: rt.cutOf(c, nil, q.cells).choose,
			Finish: func(splice.Page) (splice.Metadata, error) { return splice.Metadata{Remaining: -1}, nil },
		})
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = merged.WriteTo(w) // a client that has gone needs no answer
			return
		}
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Group: c.APIGroup, Kind: c.Resource}}
	responsewriters.WriteObjectNegotiated(forward.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, status, false)
}
