package protection

import (
	"bytes"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// change is a request to check. Its body can be sent more than once.
type change struct {
	*http.Request
	info *request.RequestInfo
	body []byte
	// pinned is set if sent, of the type sentAs, is sent instead of the body.
	pinned bool
	sent   []byte
	sentAs string
	// template, if not nil, restricts the change if it concerns a template.
	template *objbytes.Pin
	// noted is the decrease of replicas that was recorded for it.
	noted *Drop
}

// send returns the request to forward, with an unread body.
func (c *change) send() *http.Request {
	clone := *c.Request
	body := c.body
	if c.pinned {
		body = c.sent
		clone.Header = c.Header.Clone()
		clone.Header.Set("Content-Type", c.sentAs)
		clone.Header.Del("Content-Length")
	}
	forward.SetBody(&clone, body)
	if c.template != nil {
		return withTemplatePin(&clone, *c.template)
	}
	return &clone
}

// notes reports whether a drop was recorded for this request in a former attempt.
func (c *change) notes(drop Drop) bool {
	return c.noted != nil && c.noted.From == drop.From && c.noted.To == drop.To
}

// withoutNoted removes from a history the drop that was recorded for this request, because it has not happened.
func (c *change) withoutNoted(history []Drop) []Drop {
	if c.noted == nil {
		return history
	}
	for i, drop := range history {
		if drop.Time.Equal(c.noted.Time) && drop.From == c.noted.From && drop.To == c.noted.To {
			return append(history[:i:i], history[i+1:]...)
		}
	}
	return history
}

// conflictWriter forwards an answer. It buffers a conflict until the guard has decided whether to retry.
type conflictWriter struct {
	w        http.ResponseWriter
	header   http.Header
	code     int
	conflict bool
	body     bytes.Buffer
}

// Header implements http.ResponseWriter.
func (c *conflictWriter) Header() http.Header {
	if c.code != 0 && !c.conflict {
		return c.w.Header()
	}
	return c.header
}

// WriteHeader implements http.ResponseWriter. A JSON patch whose test fails counts as a conflict.
func (c *conflictWriter) WriteHeader(code int) {
	if c.code != 0 {
		return
	}
	c.code = code
	c.conflict = code == http.StatusConflict || code == http.StatusUnprocessableEntity
	if !c.conflict {
		c.writeHeader()
	}
}

func (c *conflictWriter) writeHeader() {
	forward.CopyHeader(c.w.Header(), c.header)
	c.w.WriteHeader(c.code)
}

// Write implements http.ResponseWriter.
func (c *conflictWriter) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if c.conflict {
		return c.body.Write(b)
	}
	return c.w.Write(b)
}

// FlushError implements the flushing of http.ResponseController.
func (c *conflictWriter) FlushError() error {
	if c.conflict || c.code == 0 {
		return nil
	}
	return http.NewResponseController(c.w).Flush()
}

// release forwards the buffered answer.
func (c *conflictWriter) release() {
	if !c.conflict {
		return
	}
	c.writeHeader()
	_, _ = c.body.WriteTo(c.w) // fails only if the client has disconnected
}
