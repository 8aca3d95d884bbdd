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

// judgment is a document of the hub, filtered by what was announced.
type judgment struct {
	// etag is the ETag of the hub's document, and mark that of what was announced.
	etag, mark string
	// whole is set if nothing was removed. The document itself is not cached then.
	whole bool

	mu    sync.Mutex
	forms map[string][]byte
}

// judgment returns the cached judgment of a document, nil if something else has been announced since.
func (d *Documents) judgment(path, mark string) *judgment {
	last, _ := d.judgments.Load(path)
	if found, ok := last.(*judgment); ok && found.mark == mark {
		return found
	}
	return nil
}

// judge filters a document of the hub, unless the result is cached. The hub may have changed the document in the meantime; the ETag of
// the judgment tells.
func (d *Documents) judge(ctx context.Context, path, mark, etag string, a announced) (*judgment, error) {
	if last := d.judgment(path, mark); last != nil && last.etag == etag {
		return last, nil
	}
	found, err, _ := d.judging.Do(path+" "+mark+" "+etag, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin) // other requests may wait for the result
		defer cancel()
		document, current, err := d.get(ctx, path, nil, jsonForm)
		if err != nil {
			return nil, err
		}
		return d.decide(path, mark, current, document, a)
	})
	if err != nil {
		return nil, err
	}
	return found.(*judgment), nil
}

// judgeKept filters the kept copy of a document.
func (d *Documents) judgeKept(path, mark string, a announced) (*judgment, error) {
	document, err := d.read(path, jsonForm)
	if err != nil {
		return nil, err
	}
	etag := "kept " + tag(document)
	if last := d.judgment(path, mark); last != nil && !last.whole && last.etag == etag {
		return last, nil
	}
	return d.decide(path, mark, etag, document, a)
}

func (d *Documents) decide(path, mark, etag string, document []byte, a announced) (*judgment, error) {
	left, err := a.description(document)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	found := &judgment{etag: etag, mark: mark, whole: left == nil, forms: map[string][]byte{jsonForm: left}}
	switch {
	case etag == "":
	case found.whole:
		d.judgments.Store(path, &judgment{etag: etag, mark: mark, whole: true})
	default:
		d.judgments.Store(path, found)
	}
	if found.whole {
		found.forms[jsonForm] = document
	}
	return found, nil
}

// serve answers with the filtered document.
func (j *judgment) serve(w http.ResponseWriter, r *http.Request) {
	form := formFor(r)
	document, err := j.in(form)
	if err != nil {
		forward.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("writing %s as %s: %w", r.URL.Path, form, err)))
		return
	}
	write(w, r, form, document)
}

// in returns the filtered document in a content type. Each is encoded once.
func (j *judgment) in(form string) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if document := j.forms[form]; document != nil {
		return document, nil
	}
	document, err := inForm(j.forms[jsonForm], form)
	if err == nil {
		j.forms[form] = document
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
