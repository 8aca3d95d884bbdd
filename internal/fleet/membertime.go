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

// longestRequest is how long a member may take to answer. An API server gives up after the same time by default.
const longestRequest = time.Minute

// limitInTime lets no request hang on a member that accepts connections and then says nothing.
func limitInTime(next http.RoundTripper) http.RoundTripper {
	return &timeLimit{limit: longestRequest, next: next}
}

type timeLimit struct {
	limit time.Duration
	next  http.RoundTripper
}

// RoundTrip ends the request after the limit: with the last byte for an answer, with the first for a stream.
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

// streams reports whether the answer to a request ends when somebody has enough of it.
func streams(request *http.Request) bool {
	query := request.URL.Query()
	return isTrue(query.Get("watch")) || isTrue(query.Get("follow")) || httpstream.IsUpgradeRequest(request)
}

func isTrue(value string) bool { return value == "true" || value == "1" }

// limitedBody frees the timer when an answer has been read.
type limitedBody struct {
	io.ReadCloser
	end  func()
	once sync.Once
}

// Close closes the answer.
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
