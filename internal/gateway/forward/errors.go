package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

var (
	statusScheme = runtime.NewScheme()
	// Codecs encode Status and other objects of meta/v1.
	Codecs = serializer.NewCodecFactory(statusScheme)
)

func init() {
	metav1.AddToGroupVersion(statusScheme, schema.GroupVersion{Version: "v1"})
	statusScheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
}

// WriteError answers with an error in the content type that the client accepts. An exceeded deadline becomes a timeout.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)) {
		err = apierrors.NewTimeoutError("the request did not complete within its deadline", 0)
	}
	responsewriters.ErrorNegotiated(err, Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// Unanswered is the error for a request that a control plane may have received but did not answer. A write may have been done, so the
// error has no Retry-After, which would make clients repeat it. An error that can be written as it is stays.
func Unanswered(name, method string, err error) error {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return err
	}
	var dial *net.OpError
	if method == http.MethodGet || method == http.MethodHead || (errors.As(err, &dial) && dial.Op == "dial") {
		return Unreachable(name, err)
	}
	status := apierrors.NewTimeoutError(name+" did not answer; it is not known whether the change was made", 0)
	status.ErrStatus.Details = nil
	return status
}

// Accepted returns the answer of a control plane, unless that is 401: gateways authenticate users by themselves, so the control plane does not accept the
// certificate of the gateway, and has done nothing. A client must not take that for a refusal of its own credentials. It may repeat any request.
func Accepted(name string, response *http.Response, err error) (*http.Response, error) {
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	response.Body.Close()
	status := apierrors.NewServiceUnavailable(name + " does not accept the identity of the gateway; try again in a moment")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return nil, status
}

// Unread is the error for an answer that could not be read. An error that can be written as it is stays.
func Unread(name string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return Unreachable(name, err)
}

// Unreachable is the error for a control plane that does not answer. It has a Retry-After.
func Unreachable(name string, err error) *apierrors.StatusError {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(name+" did not answer in time", 1)
	}
	status := apierrors.NewServiceUnavailable(name + " holds what you asked for and cannot be reached; the rest of the federation is not affected")
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}
