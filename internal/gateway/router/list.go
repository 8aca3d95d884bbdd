package router

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// PartialHeader with the value "true" asks for what there is of a list even if a cell cannot be reached. The answer then has a warning.
const PartialHeader = "Cellplane-Partial"

// maxAnswer bounds what one cell may answer a list with in protobuf, which has to be held as a whole.
const maxAnswer = 1 << 30

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

// answers are what cells answered a list with, in the order of their indexes.
type answers struct {
	cells     []slots.Index
	responses []*http.Response
}

func (a *answers) close() {
	for _, response := range a.responses {
		response.Body.Close()
	}
}

// refused returns the first answer that is not a list. Every cell is asked the same, so what one refuses nobody grants.
func (a *answers) refused() *http.Response {
	for _, response := range a.responses {
		if response.StatusCode != http.StatusOK {
			return response
		}
	}
	return nil
}

// form returns the form that all answers have in common. Content types do not tell Tables from other objects, but their first bytes do.
func (a *answers) form() (form, error) {
	var common form
	for i, response := range a.responses {
		f, ok := formOf(response.Header.Get("Content-Type"))
		if ok && f.encoding == splice.JSON {
			peeked := bufio.NewReaderSize(response.Body, 4<<10)
			head, _ := peeked.Peek(len(tableHead)) // what cannot be read now cannot be merged later
			f.table = string(head) == tableHead
			response.Body = peekedBody{peeked, response.Body}
		}
		if !ok || (i > 0 && f != common) {
			return form{}, fmt.Errorf("cells answered with content that cannot be merged: %q", response.Header.Get("Content-Type"))
		}
		common = f
	}
	return common, nil
}

// tableHead begins every Table in JSON.
const tableHead = `{"kind":"Table",`

// peekedBody is a body of which some has been looked at.
type peekedBody struct {
	io.Reader
	io.Closer
}

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

// merge writes one list made of the cells' answers.
func (rt *Router) merge(w http.ResponseWriter, r *http.Request, c *call, q *question, a *answers, form form) {
	begun := false
	var out io.Writer = w
	var yaml bytes.Buffer
	if form.yaml {
		out = &yaml
	}
	stream := newListWriter(w, r, a.responses[0], form)
	if !form.yaml {
		out = stream
	}
	cut := rt.cutOf(c, q, a.cells)
	options := splice.ListOptions{
		Limit:  int(q.Limit),
		Opened: cut.opened,
		Choose: cut.choose,
		Finish: func(page splice.Page) (splice.Metadata, error) { return rt.finish(c, q, a, page) },
		Begin: func() {
			begun = true
			if !form.yaml {
				stream.begin()
			}
		},
	}
	err := rt.spliced(out, a.responses, form, q.query.Get("includeObject") == "None", options)
	if err == nil && form.yaml {
		err = stream.writeYAML(yaml.Bytes())
	}
	if err == nil {
		err = stream.close()
	}
	switch {
	case err == nil:
	case begun && !form.yaml:
		klog.FromContext(r.Context()).V(2).Info("Merging a list failed", "resource", c.qualified(), "err", err)
		panic(http.ErrAbortHandler) // the client must not take what it got for all
	default:
		klog.FromContext(r.Context()).V(2).Info("Merging a list failed", "resource", c.qualified(), "err", err)
		forward.WriteError(w, r, a.asStatus(c, err))
	}
}

// spliced merges answers of one form.
func (rt *Router) spliced(out io.Writer, responses []*http.Response, form form, omitObjects bool, options splice.ListOptions) error {
	readers := make([]io.Reader, len(responses))
	for i, response := range responses {
		readers[i] = response.Body
	}
	if form.encoding == splice.Protobuf {
		// The lists are read one after the other, and no cell should wait until it is its turn.
		lists, err := readAll(responses, rt.maxList)
		if err != nil {
			return err
		}
		for i, list := range lists {
			readers[i] = bytes.NewReader(list)
		}
		_, err = splice.MergeProto(out, readers, options)
		return err
	}
	if form.table {
		_, err := splice.MergeTables(out, readers, splice.TableOptions{ListOptions: options, OmitObjects: omitObjects})
		return err
	}
	_, err := splice.MergeJSON(out, readers, options)
	return err
}

// readAll reads the answers concurrently.
func readAll(responses []*http.Response, bound int64) ([][]byte, error) {
	lists := make([][]byte, len(responses))
	var group errgroup.Group
	for i, response := range responses {
		group.Go(func() error {
			body, err := readAnswer(response, bound)
			if err != nil {
				return &splice.SourceError{Source: i, Err: err}
			}
			lists[i] = body
			return nil
		})
	}
	return lists, group.Wait()
}

// asStatus names the cell that a merge failed for.
func (a *answers) asStatus(c *call, err error) error {
	var source *splice.SourceError
	if errors.As(err, &source) && source.Source < len(a.cells) {
		return forward.Unreachable(c.view.Name(a.cells[source.Source]), source.Err)
	}
	return apierrors.NewInternalError(err)
}

// finish returns the metadata of a merged list.
func (rt *Router) finish(c *call, q *question, a *answers, page splice.Page) (splice.Metadata, error) {
	at := position.Position{Epoch: c.view.Epoch(), Versions: make([]uint64, c.view.Map.Cells())}
	if q.token != nil && q.token.Position != nil {
		at = *q.token.Position // every page shows what the first one showed
	} else {
		for cell, least := range c.view.Left() {
			at.Versions[cell] = least
		}
		for i, version := range page.Versions {
			n, err := strconv.ParseUint(version, 10, 64)
			if err != nil {
				return splice.Metadata{}, &splice.SourceError{Source: i, Err: fmt.Errorf("the list's resourceVersion is %.40q", version)}
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

// drained returns the cells that have nothing further, those of earlier pages included.
func drained(q *question, a *answers, page splice.Page) []int {
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
