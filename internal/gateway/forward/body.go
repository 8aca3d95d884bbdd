package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/limits"
)

const (
	// MaxBody is the largest request body that an API server accepts.
	MaxBody = 3 << 20
	// bodyCopies is how often a body is in memory while its request is forwarded: as received, rewritten, and pinned to a version.
	bodyCopies = 3
)

// body is a request body that has been read. Other readers of the request get the same bytes, without a copy.
type body struct {
	bytes.Reader
	content []byte
}

// Close implements io.Closer.
func (*body) Close() error { return nil }

// SetBody replaces the body of a request.
func SetBody(r *http.Request, content []byte) {
	r.Body, r.ContentLength = http.NoBody, int64(len(content))
	if len(content) > 0 {
		b := &body{content: content}
		b.Reset(content)
		r.Body = b
	}
}

// ReadBody reads the body of a request, which can be read again afterwards. The content must not be changed. The error can be written as it
// is.
func ReadBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, unsupportedMediaType(fmt.Sprintf("the Content-Encoding %.20q is not supported", encoding))
	}
	if b, ok := r.Body.(*body); ok {
		b.Reset(b.content)
		return b.content, nil
	}
	if r.ContentLength > MaxBody {
		return nil, tooLarge()
	}
	content, err := ReadAll(r.Context(), r.Body, r.ContentLength, MaxBody, bodyCopies)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tooLarge()
	case err != nil:
		var status apierrors.APIStatus
		if errors.As(err, &status) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		return nil, apierrors.NewBadRequest("reading the request body: " + err.Error())
	}
	SetBody(r, content)
	return content, nil
}

var errTooLarge = limits.ErrTooLarge

// IsTooLarge reports whether ReadAll has refused a reader for its size.
func IsTooLarge(err error) bool { return errors.Is(err, errTooLarge) }

// ReadAll reads a reader to its end. It counts a number of copies of what it reads in the budget of the request, before it allocates the memory.
// The length is the expected one, or negative.
func ReadAll(ctx context.Context, r io.Reader, length, most int64, copies int64) ([]byte, error) {
	return limits.ReadAll(r, length, most, func(bytes int64) error { return Hold(ctx, copies*bytes) })
}

// Hold counts bytes in the budget of a request until it ends, and waits until they are available. The error can be written as it is.
func Hold(ctx context.Context, bytes int64) error {
	err := limits.GrantFrom(ctx).Grow(ctx, bytes)
	if errors.Is(err, limits.ErrExhausted) {
		return apierrors.NewTooManyRequests("your requests and answers hold as much memory of the gateway as they may; "+
			"read the answers faster, send fewer requests at once, or ask for less with limit", 1)
	}
	return err
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", MaxBody))
}

func unsupportedMediaType(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: message,
	}}
}
