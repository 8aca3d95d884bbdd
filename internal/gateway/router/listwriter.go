package router

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"sigs.k8s.io/yaml"
)

// compressFrom is the size from which a list is compressed, as in API servers.
const compressFrom = 128 << 10

// listWriter writes a merged list, compressed if the client accepts that and the list is large. It holds back the first part until it
// knows.
type listWriter struct {
	http.ResponseWriter
	header  http.Header
	accepts bool
	gzip    *gzip.Writer
	started bool
	held    []byte
}

var (
	gzips = sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		return w
	}}
	helds = sync.Pool{New: func() any { b := make([]byte, 0, compressFrom+64<<10); return &b }}
)

func newListWriter(w http.ResponseWriter, r *http.Request, like *http.Response, form form) *listWriter {
	l := &listWriter{ResponseWriter: w, header: w.Header(), accepts: acceptsGzip(r)}
	contentType := like.Header.Get("Content-Type")
	if form.yaml {
		contentType = "application/yaml"
	}
	l.header.Set("Content-Type", contentType)
	if warnings := like.Header.Values("Warning"); len(warnings) > 0 {
		l.header["Warning"] = append(l.header["Warning"], warnings...)
	}
	return l
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		encoding, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if encoding == "gzip" {
			return strings.ReplaceAll(quality, " ", "") != "q=0"
		}
	}
	return false
}

// begin prepares to write the list.
func (l *listWriter) begin() {
	if l.accepts {
		l.header.Add("Vary", "Accept-Encoding")
		l.held = (*helds.Get().(*[]byte))[:0]
	}
}

// Write writes a part of the list.
func (l *listWriter) Write(b []byte) (int, error) {
	switch {
	case l.gzip != nil:
		return l.gzip.Write(b)
	case l.started || !l.accepts:
		l.start()
		return l.ResponseWriter.Write(b)
	case len(l.held)+len(b) <= compressFrom:
		l.held = append(l.held, b...)
		return len(b), nil
	}
	l.header.Set("Content-Encoding", "gzip")
	l.start()
	l.gzip, _ = gzips.Get().(*gzip.Writer)
	l.gzip.Reset(l.ResponseWriter)
	if _, err := l.gzip.Write(l.held); err != nil {
		return 0, err
	}
	return l.gzip.Write(b)
}

func (l *listWriter) start() {
	if !l.started {
		l.started = true
		l.ResponseWriter.WriteHeader(http.StatusOK)
	}
}

// close writes what was held back.
func (l *listWriter) close() error {
	var err error
	switch {
	case l.gzip != nil:
		err = l.gzip.Close()
		l.gzip.Reset(io.Discard)
		gzips.Put(l.gzip)
	case !l.started:
		l.start()
		_, err = l.ResponseWriter.Write(l.held)
	}
	if l.held != nil {
		held := l.held[:0]
		helds.Put(&held)
		l.held = nil
	}
	return err
}

// writeYAML writes a JSON list as YAML.
func (l *listWriter) writeYAML(json []byte) error {
	converted, err := yaml.JSONToYAML(json)
	if err != nil {
		return err
	}
	l.begin()
	_, err = l.Write(converted)
	return err
}
