// Package inner makes requests within the gateway: a filter asks the handler behind it with the identity of its caller.
package inner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// Answer is the buffered answer of a handler. It is the http.ResponseWriter that the handler writes to.
type Answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Do lets a handler answer a request.
func Do(handler http.Handler, r *http.Request) *Answer {
	a := &Answer{header: http.Header{}}
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
	return a.body.Write(b)
}

// Flush implements http.Flusher. It does nothing, because the whole answer is buffered.
func (a *Answer) Flush() {}

// Code returns the status code, 200 if the handler has written nothing.
func (a *Answer) Code() int {
	if a.code == 0 {
		return http.StatusOK
	}
	return a.code
}

// Body returns the body.
func (a *Answer) Body() []byte { return a.body.Bytes() }

// CopyTo copies the answer to a client.
func (a *Answer) CopyTo(w http.ResponseWriter) {
	forward.CopyHeader(w.Header(), a.header)
	w.WriteHeader(a.Code())
	_, _ = w.Write(a.Body()) // fails only if the client has disconnected
}

// Err returns the error that the answer carries, nil for a success. It can be sent to a client.
func (a *Answer) Err() error {
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
