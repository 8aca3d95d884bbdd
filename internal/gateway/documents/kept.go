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

// Run updates the kept copies until the context ends.
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
			klog.FromContext(ctx).Error(err, "keeping the hub's documents failed, they will be missing while the hub is down")
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
var errOutdated = errors.New("the hub's documents have changed")

// rounds is how often the index is read again after errOutdated, which happens while a hub starts. Kept documents are not read again.
const rounds = 10

// refreshAll keeps all changed documents, by one index.
func (d *Documents) refreshAll(ctx context.Context) error {
	var err error
	for range rounds {
		if err = d.refresh(ctx); !errors.Is(err, errOutdated) {
			return err
		}
	}
	return err
}

// refresh keeps the changed documents. The index names each document with a hash of its content.
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
	// The index is written last, when the documents that it names are there.
	if err := d.write(indexPath, jsonForm, "", index); err != nil {
		return err
	}
	d.index = index
	return nil
}

// keep reads and keeps a document, unless the kept one has the same hash.
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

// file returns the file of a document: a line with its hash and content type, followed by the document.
func (d *Documents) file(path, form string) string {
	sum := sha256.Sum256([]byte(form + " " + strings.TrimSuffix(path, "/")))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:16]))
}

func (d *Documents) write(path, form, hash string, body []byte) error {
	head := hash + " " + form + "\n"
	return keep.Write(d.file(path, form), append([]byte(head), body...))
}

var errNotKept = errors.New("no copy is kept")

// read returns the kept copy of a document in a content type.
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

// readHash returns the hash of the kept copy.
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
