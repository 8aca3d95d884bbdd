package protection

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// maxBody is the largest body of a request that an API server takes.
const maxBody = 3 << 20

// change is a request that is judged. Its body can be sent more than once.
type change struct {
	*http.Request
	info *request.RequestInfo
	body []byte
	// pinned is set if sent, of the type sentAs, is sent instead of the body.
	pinned bool
	sent   []byte
	sentAs string
	// noted is the drop of replicas that was noted for it.
	noted *Drop
}

// readBody reads the body of a request. The error can be written as it is.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the request's body could not be read: " + err.Error())
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return body, nil
}

// send is the request that is passed on, with its body from the beginning.
func (c *change) send() *http.Request {
	clone := *c.Request
	body := c.body
	if c.pinned {
		body = c.sent
		clone.Header = c.Header.Clone()
		clone.Header.Set("Content-Type", c.sentAs)
		clone.Header.Del("Content-Length")
	}
	clone.Body, clone.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		clone.Body = io.NopCloser(bytes.NewReader(body))
	}
	return &clone
}

// notes reports whether a drop was noted for this request already, before its object changed.
func (c *change) notes(drop Drop) bool {
	return c.noted != nil && c.noted.From == drop.From && c.noted.To == drop.To
}

// withoutNoted takes the drop that was noted for this request out of a history: it has not happened.
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

// conflictWriter passes an answer on, but for a conflict, which is held back until it is known what to make of it.
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

// WriteHeader implements http.ResponseWriter. A patch whose test fails is as good as a conflict.
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
	header := c.w.Header()
	for key, values := range c.header {
		header[key] = values
	}
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

// FlushError implements what http.ResponseController looks for.
func (c *conflictWriter) FlushError() error {
	if c.conflict || c.code == 0 {
		return nil
	}
	return http.NewResponseController(c.w).Flush()
}

// release passes on what was held back.
func (c *conflictWriter) release() {
	if !c.conflict {
		return
	}
	c.writeHeader()
	_, _ = c.body.WriteTo(c.w) // a client that has gone needs no answer
}
