package router

import (
	"context"
	"fmt"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/forward"
)

// readAnswer reads a cell's answer, unless it is larger than a bound.
func readAnswer(ctx context.Context, response *http.Response, bound int64) ([]byte, error) {
	body, err := forward.ReadAll(ctx, response.Body, response.ContentLength, bound, 1)
	if forward.IsTooLarge(err) {
		err = fmt.Errorf("the answer is larger than %d bytes; use limit to request less", bound)
	}
	return body, err
}

func unsupportedMediaType(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: message,
	}}
}

// mediaTypeOf returns the media type of a body, with the default of API servers.
func mediaTypeOf(header http.Header) string {
	contentType := header.Get("Content-Type")
	if contentType == "" {
		return "application/json"
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType
	}
	return mediaType
}
