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

// aboutClient are the headers in which proxies report the origin of a request. The gateway trusts no proxy in front of it.
var aboutClient = map[string]bool{
	"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true, "X-Real-Ip": true,
}

// EndToEnd returns the headers of a request that are for the destination, those about its body included.
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
		out["User-Agent"] = []string{""} // otherwise net/http sets its own
	}
	return out
}

// Answer copies a response to the client. A response of unknown length may be a stream, so the header and each part are flushed: a
// client may wait for the header of a watch before it causes the first event.
func Answer(w http.ResponseWriter, response *http.Response) {
	AnswerHeader(w, response)
	var to io.Writer = onlyWriter{w}
	if response.ContentLength < 0 {
		control := http.NewResponseController(w)
		_ = control.Flush() // the next write notices a client that has disconnected
		to = flushing{w, control}
	}
	buffer := pool.Get().(*[]byte)
	defer pool.Put(buffer)
	if _, err := io.CopyBuffer(to, response.Body, *buffer); err != nil {
		panic(http.ErrAbortHandler) // the client must notice that the body is incomplete
	}
}

// flushing flushes every write.
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

// AnswerHeader copies the status and headers of a response.
func AnswerHeader(w http.ResponseWriter, response *http.Response) {
	CopyHeader(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
}

// CopyHeader copies the headers of a response that are for the client. Warnings of the gateway stay beside those of the response. What the
// response says about the page that a browser makes of it is replaced: see Sandbox.
func CopyHeader(header, response http.Header) {
	for key, values := range response {
		switch {
		case key == "Warning":
			header[key] = append(header[key], values...)
		case !hopByHop[key]:
			header[key] = values
		}
	}
	Sandbox(header)
}

// Sandbox has browsers show an answer as a page of no origin, without scripts, whatever its header said before. The answer may come from a
// pod, through a subresource proxy. As a page of the gateway's origin it would act with the client certificate of the user, and could
// install a service worker for other paths. Other clients do not look at this.
func Sandbox(header http.Header) {
	header["Content-Security-Policy"] = sandbox
	delete(header, "Service-Worker-Allowed")
}

var sandbox = []string{"sandbox"}

// SandboxResponse is Sandbox for httputil.ReverseProxy.
func SandboxResponse(response *http.Response) error {
	Sandbox(response.Header)
	return nil
}

// onlyWriter hides ReadFrom, which would not use the pooled buffer.
type onlyWriter struct{ io.Writer }
