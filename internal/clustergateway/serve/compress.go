package serve

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// compressFrom is the smallest size of a compressed response: that of API servers.
const compressFrom = 128 << 10

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// compressor writes a response, compressed if it is large and the client accepts that.
type compressor struct {
	w      http.ResponseWriter
	accept bool
	held   []byte       // buffered until it is decided
	zip    *gzip.Writer // nil if not compressed
	begun  bool
}

func newCompressor(w http.ResponseWriter, r *http.Request, contentType string) *compressor {
	w.Header().Set("Content-Type", contentType)
	w.Header().Add("Vary", "Accept-Encoding")
	return &compressor{w: w, accept: acceptsGzip(r)}
}

func acceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(header, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			if strings.TrimSpace(name) == "gzip" && strings.ReplaceAll(parameters, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

// Write implements io.Writer.
func (c *compressor) Write(b []byte) (int, error) {
	switch {
	case c.zip != nil:
		return c.zip.Write(b)
	case c.begun:
		return c.w.Write(b)
	case !c.accept:
		c.begun = true
		return c.w.Write(b)
	case len(c.held)+len(b) < compressFrom:
		c.held = append(c.held, b...)
		return len(b), nil
	}
	c.begun = true
	c.w.Header().Set("Content-Encoding", "gzip")
	c.w.Header().Del("Content-Length")
	c.zip = compressors.Get().(*gzip.Writer)
	c.zip.Reset(c.w)
	if _, err := c.zip.Write(c.held); err != nil {
		return 0, err
	}
	c.held = nil
	return c.zip.Write(b)
}

// Close writes the rest.
func (c *compressor) Close() error {
	if c.zip == nil {
		_, err := c.w.Write(c.held)
		return err
	}
	err := c.zip.Close()
	c.zip.Reset(io.Discard)
	compressors.Put(c.zip)
	c.zip = nil
	return err
}
