package documents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// filteredDocument is a document of the hub, filtered by what was announced.
type filteredDocument struct {
	// etag is the ETag of the hub's document.
	etag string
	// whole is set if nothing was removed. The document itself is not cached then.
	whole bool

	mu    sync.Mutex
	forms map[string][]byte
}

// filteredKey names what a document was filtered to.
type filteredKey struct{ path, mark string }

// lastFiltered returns the cached filtered document, nil if there is none.
func (d *Documents) lastFiltered(path, mark string) *filteredDocument {
	if last, found := d.filtered.Get(filteredKey{path, mark}); found {
		return last.(*filteredDocument)
	}
	return nil
}

// filter filters a document of the hub, unless the result is cached. The hub may have changed the document in the meantime; the ETag of
// the result tells.
func (d *Documents) filter(ctx context.Context, path, mark, etag string, a announced) (*filteredDocument, error) {
	if last := d.lastFiltered(path, mark); last != nil && last.etag == etag {
		return last, nil
	}
	found, err, _ := d.filtering.Do(path+" "+mark+" "+etag, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin) // other requests may wait for the result
		defer cancel()
		document, current, err := d.get(ctx, path, nil, jsonForm)
		if err != nil {
			return nil, err
		}
		return d.filterDocument(path, mark, current, document, a)
	})
	if err != nil {
		return nil, err
	}
	return found.(*filteredDocument), nil
}

// filterKept filters the kept copy of a document.
func (d *Documents) filterKept(path, mark string, a announced) (*filteredDocument, error) {
	document, err := d.read(path, jsonForm)
	if err != nil {
		return nil, err
	}
	etag := "kept " + tag(document)
	if last := d.lastFiltered(path, mark); last != nil && !last.whole && last.etag == etag {
		return last, nil
	}
	return d.filterDocument(path, mark, etag, document, a)
}

func (d *Documents) filterDocument(path, mark, etag string, document []byte, a announced) (*filteredDocument, error) {
	left, err := a.description(document)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	found := &filteredDocument{etag: etag, whole: left == nil, forms: map[string][]byte{jsonForm: left}}
	switch {
	case etag == "":
	case found.whole:
		d.filtered.Add(filteredKey{path, mark}, &filteredDocument{etag: etag, whole: true})
	default:
		d.filtered.Add(filteredKey{path, mark}, found)
	}
	if found.whole {
		found.forms[jsonForm] = document
	}
	return found, nil
}

// serve answers with the filtered document.
func (f *filteredDocument) serve(w http.ResponseWriter, r *http.Request) {
	form := formFor(r)
	document, err := f.in(form)
	if err != nil {
		forward.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("writing %s as %s: %w", r.URL.Path, form, err)))
		return
	}
	write(w, r, form, document)
}

// in returns the filtered document in a content type. Each is encoded once.
func (f *filteredDocument) in(form string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if document := f.forms[form]; document != nil {
		return document, nil
	}
	document, err := inForm(f.forms[jsonForm], form)
	if err == nil {
		f.forms[form] = document
	}
	return document, err
}

// write answers with a document, or with 304.
func write(w http.ResponseWriter, r *http.Request, form string, document []byte) {
	w.Header().Set("Content-Type", form)
	w.Header().Set("Etag", strconv.Quote(tag(document)))
	w.Header().Set("Vary", "Accept")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document))
}

func tag(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}
