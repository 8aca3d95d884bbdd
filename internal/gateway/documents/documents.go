// Package documents serves what the hub says about itself: its version, and the OpenAPI descriptions of its resources. They are kept on
// disk, because clients ask for them before they do anything, also while the hub is down.
package documents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/gateway/keep"
)

const (
	// refreshEvery is how often the hub is asked whether something has changed; mostly it has not.
	refreshEvery = 30 * time.Second
	// maxDocument bounds a document; the largest describes all resources at once.
	maxDocument = 256 << 20

	indexPath   = "/openapi/v3"
	jsonForm    = "application/json"
	protoFormV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoFormV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// Documents serves the hub's documents, and keeps them.
type Documents struct {
	hub     *fleet.Upstream
	dir     string  // "" keeps nothing
	exposed Exposed // nil means everything

	index []byte // what was there last
}

// New returns Documents of the hub that are kept in a directory; an empty one means nowhere. They tell of the resources that are exposed;
// nil means all.
func New(hub *fleet.Upstream, dir string, exposed Exposed) *Documents {
	d := &Documents{hub: hub, exposed: exposed}
	if dir != "" {
		d.dir = filepath.Join(dir, "documents")
	}
	return d
}

// Serves reports whether a path is one of a document.
func Serves(path string) bool {
	return path == "/version" || path == "/version/" || strings.HasPrefix(path, "/openapi/")
}

// ServeHTTP passes a request on to the hub, and answers with what was kept if the hub cannot be reached.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.exposed != nil && strings.HasPrefix(r.URL.Path, "/openapi/") {
		d.serveExposed(w, r)
		return
	}
	out := (&http.Request{
		Method: r.Method, URL: &url.URL{Path: r.URL.Path, RawQuery: r.URL.RawQuery}, Header: forward.EndToEnd(r.Header),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(r.Context())
	forward.Prepare(out, forward.Hub)
	response, err := d.hub.RoundTrip(out)
	if err == nil {
		defer response.Body.Close()
		forward.Answer(w, response)
		return
	}
	contentType, body, keptErr := d.read(r.URL.Path, formFor(r))
	if keptErr != nil || r.Method != http.MethodGet {
		forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), err))
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// serveExposed answers with what a document says about the resources that are exposed.
func (d *Documents) serveExposed(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	document, err := d.get(r.Context(), path, nil, jsonForm)
	if errors.Is(err, errNoDocument) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		var keptErr error
		if _, document, keptErr = d.read(path, jsonForm); keptErr != nil {
			forward.WriteError(w, r, forward.Unreachable(d.hub.Name(), err))
			return
		}
	}
	form := jsonForm
	if path == indexPath {
		document, err = d.exposed.index(document)
	} else if document, err = d.exposed.description(document); err == nil {
		form = formFor(r)
		document, err = inForm(document, form)
	}
	if err != nil {
		forward.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("reading %s: %w", path, err)))
		return
	}
	sum := sha256.Sum256(document)
	w.Header().Set("Content-Type", form)
	w.Header().Set("Etag", strconv.Quote(hex.EncodeToString(sum[:])))
	w.Header().Set("Vary", "Accept")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
}

// formFor returns the form of a document that a client wants. Of those that it accepts the first one counts.
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

// Run keeps the documents until the context ends.
func (d *Documents) Run(ctx context.Context) {
	if d.dir == "" {
		return
	}
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	failing := false
	for {
		err := d.refreshAll(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The hub's documents cannot be kept; clients that need them will need the hub")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// errNoDocument means that the hub has no such document.
var errNoDocument = errors.New("there is no such document")

// errOutdated means that the hub has changed a document since it made the index that was read.
var errOutdated = errors.New("the hub's documents have changed meanwhile")

// rounds is how often the index is read anew for that, which happens while a hub starts. What has been kept is not read again.
const rounds = 10

// refreshAll keeps what has changed, by one index.
func (d *Documents) refreshAll(ctx context.Context) error {
	var err error
	for range rounds {
		if err = d.refresh(ctx); !errors.Is(err, errOutdated) {
			return err
		}
	}
	return err
}

// refresh keeps what has changed. The index names every document with a hash of its content.
func (d *Documents) refresh(ctx context.Context) error {
	index, err := d.get(ctx, indexPath, nil, jsonForm)
	if err != nil || bytes.Equal(index, d.index) {
		return err
	}
	var parsed struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(index, &parsed); err != nil {
		return fmt.Errorf("reading %s: %w", indexPath, err)
	}
	for _, document := range parsed.Paths {
		at, err := url.Parse(document.ServerRelativeURL)
		if err != nil {
			return fmt.Errorf("reading %s: %w", indexPath, err)
		}
		for _, form := range []string{jsonForm, protoFormV3} {
			if err := d.keep(ctx, at.Path, at.Query(), form); err != nil {
				return err
			}
		}
	}
	for path, form := range map[string]string{"/version": jsonForm, "/openapi/v2": protoFormV2} {
		if err := d.keep(ctx, path, nil, form); err != nil {
			return err
		}
	}
	if err := d.keep(ctx, "/openapi/v2", nil, jsonForm); err != nil {
		return err
	}
	// The index comes last: what it names is there.
	if err := d.write(indexPath, jsonForm, "", index); err != nil {
		return err
	}
	d.index = index
	return nil
}

// keep keeps a document, unless the one that is kept has the same hash.
func (d *Documents) keep(ctx context.Context, path string, query url.Values, form string) error {
	hash := query.Get("hash")
	if kept, err := d.readHash(path, form); err == nil && hash != "" && kept == hash {
		return nil
	}
	body, err := d.get(ctx, path, query, form)
	if err != nil {
		return err
	}
	return d.write(path, form, hash, body)
}

func (d *Documents) get(ctx context.Context, path string, query url.Values, form string) ([]byte, error) {
	r := (&http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Header: http.Header{"Accept": {form}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	forward.AsGateway(r, forward.Hub)
	response, err := d.hub.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("asking the hub for %s: %w", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking the hub for %s: %w", path, err)
	case response.StatusCode == http.StatusMovedPermanently: // to the same document with another hash
		return nil, fmt.Errorf("asking the hub for %s: %w", path, errOutdated)
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("asking the hub for %s: %w", path, errNoDocument)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("asking the hub for %s: it answered %s", path, response.Status)
	case len(body) > maxDocument:
		return nil, fmt.Errorf("asking the hub for %s: the answer is too large", path)
	}
	return body, nil
}

// file is where a document is kept: a line with its hash and content type, and then the document.
func (d *Documents) file(path, form string) string {
	sum := sha256.Sum256([]byte(form + " " + strings.TrimSuffix(path, "/")))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:16]))
}

func (d *Documents) write(path, form, hash string, body []byte) error {
	head := hash + " " + form + "\n"
	return keep.Write(d.file(path, form), append([]byte(head), body...))
}

var errNotKept = errors.New("nothing is kept")

func (d *Documents) read(path, form string) (contentType string, body []byte, err error) {
	if d.dir == "" {
		return "", nil, errNotKept
	}
	data, err := os.ReadFile(d.file(path, form))
	if err != nil && form != jsonForm {
		form = jsonForm
		data, err = os.ReadFile(d.file(path, form))
	}
	if err != nil {
		return "", nil, err
	}
	_, body, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return "", nil, errNotKept
	}
	return form, body, nil
}

// readHash returns the hash of what is kept.
func (d *Documents) readHash(path, form string) (string, error) {
	file, err := os.Open(d.file(path, form))
	if err != nil {
		return "", err
	}
	defer file.Close()
	head := make([]byte, 256)
	n, err := file.Read(head)
	if err != nil {
		return "", err
	}
	hash, _, _ := bytes.Cut(head[:n], []byte(" "))
	return string(hash), nil
}
