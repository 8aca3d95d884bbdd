package documents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/gateway/keep"
)

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
	index, _, err := d.get(ctx, indexPath, nil, jsonForm)
	if err != nil || bytes.Equal(index, d.index) {
		return err
	}
	var parsed indexDocument
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
	body, _, err := d.get(ctx, path, query, form)
	if err != nil {
		return err
	}
	return d.write(path, form, hash, body)
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

// read returns what is kept of a document in one form.
func (d *Documents) read(path, form string) ([]byte, error) {
	if d.dir == "" {
		return nil, errNotKept
	}
	data, err := os.ReadFile(d.file(path, form))
	if err != nil {
		return nil, err
	}
	_, body, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return nil, errNotKept
	}
	return body, nil
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
