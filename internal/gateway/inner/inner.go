// Package inner makes requests within the gateway: a filter asks the handler behind it with the identity of its caller.
package inner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
	"github.com/cellplane/cellplane/internal/limits"
)

const (
	// maxAnswer is the size of the largest answer.
	maxAnswer = 64 << 20
	// copies is how often an answer is in memory: as received and decoded.
	copies = 2
)

// Answer is the buffered answer of a handler. It is the http.ResponseWriter that the handler writes to. What it holds counts in the budget of the
// request, if the request stores nothing: an answer to a write is not lost because there is no memory for it.
type Answer struct {
	ctx    context.Context
	counts bool
	header http.Header
	code   int
	body   bytes.Buffer
	held   int // bytes of the body that are counted
	// failed is why the answer could not be held.
	failed *apierrors.StatusError
}

type asked struct{}

// Asks reports whether the gateway itself reads the answer to a request, which Do has made.
func Asks(ctx context.Context) bool { return ctx.Value(asked{}) != nil }

// Do lets a handler answer a request of the gateway.
func Do(handler http.Handler, r *http.Request) *Answer {
	return Hold(handler, r.WithContext(context.WithValue(r.Context(), asked{}, true)))
}

// Hold lets a handler answer a request of a client, who gets the answer later.
func Hold(handler http.Handler, r *http.Request) (a *Answer) {
	a = &Answer{ctx: r.Context(), counts: r.Method == http.MethodGet || r.URL.Query().Get("dryRun") == metav1.DryRunAll, header: http.Header{}}
	defer func() {
		// A handler that cannot write the rest of its answer aborts.
		if problem := recover(); problem != nil && (problem != http.ErrAbortHandler || a.failed == nil) { //nolint:errorlint // it is panicked with as it is
			panic(problem)
		}
	}()
	handler.ServeHTTP(a, r)
	return a
}

// Header implements http.ResponseWriter.
func (a *Answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write implements http.ResponseWriter.
func (a *Answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.failed == nil {
		a.failed = a.hold(a.body.Len() + len(b))
	}
	if a.failed != nil {
		return 0, a.failed
	}
	return a.body.Write(b)
}

// hold counts a body of a size. The error can be sent to a client.
func (a *Answer) hold(size int) *apierrors.StatusError {
	switch {
	case size > maxAnswer:
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the gateway needs an answer that is larger than %d bytes; ask for less with limit", maxAnswer))
	case !a.counts, size <= max(a.held, limits.Free):
		return nil
	}
	most := max(size, 2*a.held)
	err := forward.Hold(a.ctx, int64(copies*(most-a.held)))
	if err == nil {
		a.held = most
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		status = apierrors.NewTimeoutError("the request did not complete within its deadline", 0)
	}
	return status
}

// Release ends what the answer holds. Its body must not be used any more.
func (a *Answer) Release() {
	limits.GrantFrom(a.ctx).Shrink(int64(copies * a.held))
	a.held, a.body = 0, bytes.Buffer{}
}

// TooLarge reports whether the answer was larger than what is held.
func (a *Answer) TooLarge() bool {
	return a.failed != nil && apierrors.IsRequestEntityTooLargeError(a.failed)
}

// Flush implements http.Flusher. It does nothing, because the whole answer is buffered.
func (a *Answer) Flush() {}

// Code returns the status code, 200 if the handler has written nothing.
func (a *Answer) Code() int {
	switch {
	case a.failed != nil:
		return int(a.failed.ErrStatus.Code)
	case a.code == 0:
		return http.StatusOK
	}
	return a.code
}

// Body returns the body.
func (a *Answer) Body() []byte { return a.body.Bytes() }

// Replace replaces the body.
func (a *Answer) Replace(body []byte) {
	a.body = *bytes.NewBuffer(body)
	a.header.Set("Content-Length", strconv.Itoa(len(body)))
}

// CopyTo copies the answer to a client.
func (a *Answer) CopyTo(w http.ResponseWriter) {
	if a.failed != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.Code())
		status := a.failed.ErrStatus
		status.APIVersion, status.Kind = "v1", "Status"
		_ = json.NewEncoder(w).Encode(status) // fails only if the client has disconnected
		return
	}
	forward.CopyHeader(w.Header(), a.header)
	w.WriteHeader(a.Code())
	_, _ = w.Write(a.Body()) // fails only if the client has disconnected
}

// Err returns the error that the answer carries, nil for a success. It can be sent to a client.
func (a *Answer) Err() error {
	if a.failed != nil {
		return a.failed
	}
	if a.Code() < http.StatusBadRequest {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(a.Body(), &status); err == nil && status.Code != 0 {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(a.Code()), Reason: metav1.StatusReasonUnknown, Message: fmt.Sprintf("got %d: %.500s", a.Code(), a.Body()),
	}}
}
