package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

// requestTimeout is how long a member may take to answer. It is also the default of API servers.
const requestTimeout = time.Minute

// limitInTime ends requests to a member that accepts connections and does not answer.
func limitInTime(next http.RoundTripper) http.RoundTripper {
	return &timeLimit{limit: requestTimeout, next: next}
}

type timeLimit struct {
	limit time.Duration
	next  http.RoundTripper
}

// RoundTrip cancels a request that takes too long. An answer must be complete within the limit, a stream must begin within it.
func (t *timeLimit) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	timer := time.AfterFunc(t.limit, func() {
		cancel(fmt.Errorf("no answer from the member within %s: %w", t.limit, context.DeadlineExceeded))
	})
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		timer.Stop()
		if cause := context.Cause(ctx); cause != nil && request.Context().Err() == nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	if streams(request) || response.StatusCode == http.StatusSwitchingProtocols {
		timer.Stop()
	}
	end := func() { timer.Stop(); cancel(nil) }
	if writer, ok := response.Body.(io.ReadWriteCloser); ok {
		response.Body = &limitedConn{ReadWriteCloser: writer, end: end}
		return response, nil
	}
	response.Body = &limitedBody{ReadCloser: response.Body, end: end}
	return response, nil
}

// WrappedRoundTripper returns what the request is passed to.
func (t *timeLimit) WrappedRoundTripper() http.RoundTripper { return t.next }

// streams reports whether the answer to a request is a stream.
func streams(request *http.Request) bool {
	query := request.URL.Query()
	return isTrue(query.Get("watch")) || isTrue(query.Get("follow")) || httpstream.IsUpgradeRequest(request)
}

func isTrue(value string) bool { return value == "true" || value == "1" }

// limitedBody stops the timer when the body is closed.
type limitedBody struct {
	io.ReadCloser
	end  func()
	once sync.Once
}

// Close closes the body.
func (b *limitedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.end)
	return err
}

// limitedConn is limitedBody for an upgraded connection, which is written to as well.
type limitedConn struct {
	io.ReadWriteCloser
	end  func()
	once sync.Once
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	err := c.ReadWriteCloser.Close()
	c.once.Do(c.end)
	return err
}
