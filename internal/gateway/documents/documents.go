// Package documents serves the hub's version and its OpenAPI documents. They are kept on disk, because clients read them before anything
// else, also while the hub is down.
//
// The documents describe what discovery shows to a user. Usually that is everything, and the answers of the hub are forwarded unchanged.
// Otherwise a document is filtered once, and the result is cached until the document or discovery changes.
package documents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/lru"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

const (
	// refreshEvery is how often the hub is asked for changes.
	refreshEvery = 30 * time.Second
	// readWithin bounds the read of one document.
	readWithin = 30 * time.Second
	// maxDocument bounds the size of a document; the largest describes all resources.
	maxDocument = 256 << 20
	// filteredCached is how many filtered documents are cached: those of all groups, for each kind of user.
	filteredCached = 256

	indexPath   = "/openapi/v3"
	jsonForm    = "application/json"
	protoFormV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoFormV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// Documents serves the hub's documents, and keeps copies of them on disk.
type Documents struct {
	hub       *fleet.Upstream
	dir       string // empty for no copies
	announced func(context.Context) *kinds.Announced

	filtered  *lru.Cache // path and mark → last *filteredDocument
	filtering singleflight.Group

	index []byte // as last kept
}

// New returns Documents of the hub with copies in a directory, if it is not empty. They describe what announced returns for the user of a
// request, which is nil while that is not known.
func New(hub *fleet.Upstream, dir string, announced func(context.Context) *kinds.Announced) *Documents {
	d := &Documents{hub: hub, announced: announced, filtered: lru.New(filteredCached)}
	if dir != "" {
		d.dir = filepath.Join(dir, "documents")
	}
	return d
}

// Serves reports whether a path belongs to a document.
func Serves(path string) bool {
	return path == "/version" || path == "/version/" || strings.HasPrefix(path, "/openapi/")
}

// ServeHTTP forwards a request to the hub, and answers with the kept copy if the hub cannot be reached.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if !strings.HasPrefix(path, "/openapi/") {
		d.serveVersion(w, r)
		return
	}
	known := d.announced(r.Context())
	switch {
	case known == nil:
		forward.WriteError(w, r, apierrors.NewServiceUnavailable("the gateway does not know its API yet; try again in a moment"))
	case path == indexPath:
		d.serveIndex(w, r, announced{known})
	default:
		d.serveDescription(w, r, path, announced{known})
	}
}

// serveVersion serves the version of the hub.
func (d *Documents) serveVersion(w http.ResponseWriter, r *http.Request) {
	response, err := d.pass(r, r.URL.RawQuery, r.Header.Get("If-None-Match"))
	if err == nil {
		defer response.Body.Close()
		forward.Answer(w, response)
		return
	}
	body, keptErr := d.read(r.URL.Path, jsonForm)
	if keptErr != nil {
		forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), err))
		return
	}
	write(w, r, jsonForm, body)
}

// serveIndex serves the index of the OpenAPI documents.
func (d *Documents) serveIndex(w http.ResponseWriter, r *http.Request, a announced) {
	index, _, err := d.get(r.Context(), indexPath, nil, jsonForm)
	if err != nil {
		var keptErr error
		if index, keptErr = d.read(indexPath, jsonForm); keptErr != nil {
			forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), err))
			return
		}
	}
	if index, err = a.index(index); err != nil {
		forward.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("reading %s: %w", indexPath, err)))
		return
	}
	write(w, r, jsonForm, index)
}

// serveDescription forwards the document of the hub, or serves the filtered one.
func (d *Documents) serveDescription(w http.ResponseWriter, r *http.Request, path string, a announced) {
	about, mark := strings.TrimPrefix(path, indexPath), a.Mark()
	if about != path {
		mark = a.mark(about)
		if !a.keeps(about) {
			http.NotFound(w, r)
			return
		}
	}
	// A filtered document is served again if the hub's has not changed.
	unless := r.Header.Get("If-None-Match")
	if last := d.lastFiltered(path, mark); last != nil && !last.whole {
		unless = last.etag
	}
	response, err := d.pass(r, unmarked(r.URL.Query(), mark), unless)
	if err != nil {
		d.serveKept(w, r, path, mark, a, err)
		return
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK, http.StatusNotModified:
	case http.StatusMovedPermanently:
		if address, err := withMark(response.Header.Get("Location"), mark); err == nil {
			response.Header.Set("Location", address)
		}
		fallthrough
	default:
		forward.Answer(w, response)
		return
	}
	found, err := d.filter(r.Context(), path, mark, response.Header.Get("Etag"), a)
	switch {
	case errors.Is(err, errNoDocument): // removed meanwhile
		http.NotFound(w, r)
	case err != nil:
		forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), err))
	case found.whole && found.etag == response.Header.Get("Etag"):
		forward.Answer(w, response)
	default:
		found.serve(w, r)
	}
}

// serveKept serves the kept copy because the hub failed with reason.
func (d *Documents) serveKept(w http.ResponseWriter, r *http.Request, path, mark string, a announced, reason error) {
	found, err := d.filterKept(path, mark, a)
	if err != nil {
		forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), reason))
		return
	}
	form := formFor(r)
	if document, err := d.read(path, form); err == nil && found.whole {
		write(w, r, form, document)
		return
	}
	found.serve(w, r)
}

// unmarked returns the query for the hub, which does not know marks. A hash with another mark becomes one that the hub does not have:
// it redirects the client to the present document.
func unmarked(query url.Values, mark string) string {
	if hash := query.Get("hash"); hash != "" {
		own, found := strings.CutSuffix(hash, mark)
		if !found || own == "" {
			own = "other"
		}
		query.Set("hash", own)
	}
	return query.Encode()
}

// pass forwards a request to the hub.
func (d *Documents) pass(r *http.Request, query, unless string) (*http.Response, error) {
	out := (&http.Request{
		Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawQuery: query}, Header: forward.EndToEnd(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(r.Context())
	if unless != "" {
		out.Header.Set("If-None-Match", unless)
	}
	forward.Prepare(out, forward.Hub)
	return d.hub.RoundTrip(out)
}

// errNoDocument means that the hub has no such document.
var errNoDocument = errors.New("no such document")

// get reads a document of the hub with the identity of the gateway.
func (d *Documents) get(ctx context.Context, path string, query url.Values, form string) (body []byte, etag string, err error) {
	r := (&http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Header: http.Header{"Accept": {form}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	forward.AsGateway(r, forward.Hub)
	response, err := d.hub.RoundTrip(r)
	if err != nil {
		return nil, "", fmt.Errorf("reading %s from the hub: %w", path, err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("reading %s from the hub: %w", path, err)
	case response.StatusCode == http.StatusMovedPermanently: // to the same document with another hash
		return nil, "", fmt.Errorf("reading %s from the hub: %w", path, errOutdated)
	case response.StatusCode == http.StatusNotFound:
		return nil, "", fmt.Errorf("reading %s from the hub: %w", path, errNoDocument)
	case response.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("reading %s from the hub: got %s", path, response.Status)
	case len(body) > maxDocument:
		return nil, "", fmt.Errorf("reading %s from the hub: the answer is too large", path)
	}
	return body, response.Header.Get("Etag"), nil
}

// formFor returns the content type that a client wants: the first one that it accepts.
func formFor(r *http.Request) string {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	switch {
	case !strings.Contains(first, "proto"):
		return jsonForm
	case strings.HasPrefix(r.URL.Path, indexPath):
		return protoFormV3
	default:
		return protoFormV2
	}
}
