package router

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxBody is the largest request body that an API server accepts.
const maxBody = 3 << 20

// readBody reads the body of a request. The error can be written as it is.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, unsupportedMediaType(fmt.Sprintf("the Content-Encoding %.20q is not supported", encoding))
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	var body []byte
	if r.ContentLength > 0 {
		body = make([]byte, 0, r.ContentLength)
	}
	body, err := appendAll(body, io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		return nil, apierrors.NewBadRequest("reading the request body: " + err.Error())
	}
	if len(body) > maxBody {
		return nil, tooLarge()
	}
	return body, nil
}

// appendAll reads a reader to its end. It does not copy if dst has the capacity.
func appendAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// maxPreallocated limits the buffer that is allocated for the announced length of an answer.
const maxPreallocated = 1 << 20

// readAnswer reads a cell's answer, unless it is larger than a bound.
func readAnswer(response *http.Response, bound int64) ([]byte, error) {
	capacity := min(max(response.ContentLength+1, 4<<10), maxPreallocated)
	body, err := appendAll(make([]byte, 0, capacity), io.LimitReader(response.Body, bound+1))
	if err == nil && int64(len(body)) > bound {
		err = fmt.Errorf("the answer is larger than %d bytes; use limit to request less", bound)
	}
	return body, err
}

func tooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
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
