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

// EndToEnd returns the headers of a request that are for the server at the other end, those about its body included.
func EndToEnd(header http.Header) http.Header {
	out := make(http.Header, len(header)+6)
	for key, values := range header {
		if hopByHop[key] || key == "Content-Length" {
			continue
		}
		out[key] = values
	}
	for _, list := range header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return out
}

// Answer passes an answer on.
func Answer(w http.ResponseWriter, response *http.Response) {
	AnswerHeader(w, response)
	buffer := *pool.Get().(*[]byte)
	defer func() { pool.Put(&buffer) }()
	if _, err := io.CopyBuffer(onlyWriter{w}, response.Body, buffer); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for all
	}
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
