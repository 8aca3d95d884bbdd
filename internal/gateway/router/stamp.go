package router

import (
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/placement"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// showsVersions reports whether clients see versions of objects. Otherwise they see the resourceVersions of cells, and positions in
// watches.
func (c *call) showsVersions() bool { return c.view.Owners != nil }

// version returns the version of a revision of an object in a cell. It is false if the cell is not known to have owned the object's
// slot: the revision stays as it is then.
func (rt *Router) version(c *call, cell slots.Index, namespace, name, revision string) (string, bool) {
	if !c.showsVersions() {
		return revision, true
	}
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil || n == 0 {
		return revision, true
	}
	version, known := rt.versionFrom(c, cell, namespace, name, n)
	if text := version.String(); known && text != "" {
		return text, true
	}
	return revision, known // one that cannot be encoded is understood as it is
}

func (rt *Router) versionFrom(c *call, cell slots.Index, namespace, name string, revision uint64) (position.Version, bool) {
	switch c.placement {
	case placement.ByName:
		return c.view.Version(cell, slots.Of(namespace, name), revision)
	case placement.ByTemplate:
		if catalog := rt.Kinds.Catalog(); catalog != nil {
			for _, slot := range catalog.Kinds.OfBinding(namespace, name) {
				if version, owned := c.view.Version(cell, slot, revision); owned {
					return version, true
				}
			}
		}
	}
	return c.view.Unowned(cell, revision), c.view.Number(cell) != 0
}

// stamp replaces the versions in an answer about one object.
func (rt *Router) stamp(c *call, cell slots.Index, name, mediaType string, body []byte) ([]byte, error) {
	if !c.showsVersions() {
		return body, nil
	}
	return splice.Stamp(mediaType, body, func(revision string) string {
		c.stamped = revision
		version, _ := rt.version(c, cell, c.Namespace, name, revision)
		return version
	})
}

// stamp replaces the versions in an answer that was read.
func (a *answer) stamp(rt *Router, c *call, name string) error {
	if !c.showsVersions() || a.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	body, err := rt.stamp(c, a.cell, name, mediaTypeOf(a.Header), a.body)
	if err != nil {
		return forward.Unreachable(c.view.Name(a.cell), err)
	}
	a.body = body
	a.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// errAnswerLost answers a write whose answer could not be read. It has no Retry-After, which would make clients repeat it.
var errAnswerLost = func() error {
	status := apierrors.NewTimeoutError("the cell has answered, but its answer could not be read; it is not known whether the change was made", 0)
	status.ErrStatus.Details = nil
	return status
}()

// answerWrite passes the answer to a write on to the client, or its error.
func (rt *Router) answerWrite(w http.ResponseWriter, r *http.Request, c *call, name string, response *http.Response, err error) {
	if err != nil {
		err = asStatus(err, c)
	}
	rt.warnOfRefusal(w, r, c, response, err)
	if err != nil {
		forward.WriteError(w, r, err)
		return
	}
	defer response.Body.Close()
	if !c.showsVersions() || response.StatusCode >= http.StatusMultipleChoices {
		forward.Answer(w, response)
		return
	}
	body, err := readAnswer(r.Context(), response, maxObject)
	got := &answer{Response: response, body: body, cell: c.wrote}
	if err == nil {
		err = got.stamp(rt, c, name)
	}
	if err != nil {
		forward.WriteError(w, r, errAnswerLost)
		return
	}
	rt.noteWrite(r, c, body)
	got.write(w, r)
}

// withVersion returns a read of one object with the resourceVersion of its query translated for a cell. A version that says nothing
// about the cell is left out, so that the cell shows its latest state.
func (rt *Router) withVersion(r *http.Request, c *call, cell slots.Index) *http.Request {
	query := r.URL.Query()
	kind, err := position.Classify(query.Get("resourceVersion"))
	if err != nil || kind != position.Object && kind != position.Merged {
		return r // the API server refuses what it cannot read
	}
	query.Del("resourceVersion")
	switch kind {
	case position.Object:
		if v, err := position.ParseVersion(r.URL.Query().Get("resourceVersion")); err == nil && v.Cell == c.view.Number(cell) {
			query.Set("resourceVersion", strconv.FormatUint(v.Revision, 10))
		}
	case position.Merged:
		if p, err := position.Parse(r.URL.Query().Get("resourceVersion")); err == nil {
			if carried, err := rt.Topology.Carry(p, c.view); err == nil && carried.Versions[cell] != 0 {
				query.Set("resourceVersion", strconv.FormatUint(carried.Versions[cell], 10))
			}
		}
	}
	clone := *r
	clone.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}
	return &clone
}
