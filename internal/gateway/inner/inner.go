// Package inner makes requests within the gateway: what a filter asks the handler behind it in the name of the caller of another request.
package inner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer is what a handler has answered. It is the http.ResponseWriter that the handler writes to.
type Answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Ask lets a handler answer a request.
func Ask(handler http.Handler, r *http.Request) *Answer {
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

// Flush implements http.Flusher: whoever asked waits for all of it.
func (a *Answer) Flush() {}

// Code returns the status code: a handler that has written nothing is content.
func (a *Answer) Code() int {
	if a.code == 0 {
		return http.StatusOK
	}
	return a.code
}

// Body returns what came after the headers.
func (a *Answer) Body() []byte { return a.body.Bytes() }

// PassOn gives the answer to somebody else.
func (a *Answer) PassOn(w http.ResponseWriter) {
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.WriteHeader(a.Code())
	_, _ = w.Write(a.Body()) // a client that has gone needs no answer
}

// Err returns the error that the answer is, nil if it is none. It can be written as it is.
func (a *Answer) Err() error {
	if a.Code() < http.StatusBadRequest {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(a.Body(), &status); err == nil && status.Code != 0 {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(a.Code()), Reason: metav1.StatusReasonUnknown, Message: fmt.Sprintf("the answer is %d: %.500s", a.Code(), a.Body()),
	}}
}
