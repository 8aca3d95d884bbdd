package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed static
var embedded embed.FS

// page is the only file that is not cached for ever: it names the others.
const page = "index.html"

// contentTypes are those of the files, by extension. Other files are not served.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// file is a file as it is served.
type file struct {
	contentType   string
	etag          string
	plain, packed []byte // as it is, and with gzip
	immutable     bool
}

// files returns the files by the path after Prefix. The names of all but the page contain a hash of their content, so that browsers can
// keep them.
var files = sync.OnceValues(func() (map[string]*file, error) {
	root, err := fs.Sub(embedded, "static")
	if err != nil {
		return nil, err
	}
	served := map[string]*file{}
	var renamed []string
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() == page {
			continue
		}
		data, err := fs.ReadFile(root, entry.Name())
		if err != nil {
			return nil, err
		}
		made, err := newFile(entry.Name(), data)
		if err != nil {
			return nil, err
		}
		made.immutable = true
		hashed := withHash(entry.Name(), data)
		served[hashed] = made
		renamed = append(renamed, `"`+entry.Name()+`"`, `"`+hashed+`"`)
	}
	data, err := fs.ReadFile(root, page)
	if err != nil {
		return nil, err
	}
	served[""], err = newFile(page, []byte(strings.NewReplacer(renamed...).Replace(string(data))))
	return served, err
})

func newFile(name string, data []byte) (*file, error) {
	contentType, known := contentTypes[path.Ext(name)]
	if !known {
		return nil, fmt.Errorf("the console has a file of an unknown type: %s", name)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	return &file{contentType: contentType, etag: `"` + hash(data) + `"`, plain: data, packed: packed.Bytes()}, err
}

func withHash(name string, data []byte) string {
	extension := path.Ext(name)
	return strings.TrimSuffix(name, extension) + "." + hash(data) + extension
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
