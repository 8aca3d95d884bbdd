package forward

import (
	"io"
	"net/http"
	"strings"
)

// hopByHop are the headers that concern one connection only.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// aboutClient are the headers by which proxies tell where a request came from. Nobody before a gateway is believed.
var aboutClient = map[string]bool{
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true,
}

// EndToEnd returns the headers of a request that are for the server at the other end, those about its body included.
func EndToEnd(header http.Header) http.Header {
	out := make(http.Header, len(header)+6)
	for key, values := range header {
		if hopByHop[key] || aboutClient[key] || key == "Content-Length" {
			continue
		}
		out[key] = values
	}
	for _, list := range header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	if _, found := out["User-Agent"]; !found {
		out["User-Agent"] = []string{""} // or we would name ourselves
	}
	return out
}

// Answer passes an answer on. One whose length is not known may be a stream: what there is of it is not held back.
func Answer(w http.ResponseWriter, response *http.Response) {
	AnswerHeader(w, response)
	var to io.Writer = onlyWriter{w}
	if response.ContentLength < 0 {
		to = flushing{w, http.NewResponseController(w)}
	}
	buffer := pool.Get().(*[]byte)
	defer pool.Put(buffer)
	if _, err := io.CopyBuffer(to, response.Body, *buffer); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for all
	}
}

// flushing flushes what is written.
type flushing struct {
	io.Writer
	controller *http.ResponseController
}

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.controller.Flush()
	}
	return n, err
}

// AnswerHeader passes on the status and headers of an answer.
func AnswerHeader(w http.ResponseWriter, response *http.Response) {
	header := w.Header()
	for key, values := range response.Header {
		if !hopByHop[key] {
			header[key] = values
		}
	}
	w.WriteHeader(response.StatusCode)
}

// onlyWriter hides ReadFrom, which would not use our buffer.
type onlyWriter struct{ io.Writer }
