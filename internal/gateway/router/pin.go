package router

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// pin restricts a write to one version of an object, unless it already names one. It is needed where a cell cannot tell that the object
// has begun to move. The error can be written as it is.
func pin(mediaType string, body []byte, version string) ([]byte, error) {
	pinned, err := objbytes.Pin{ResourceVersion: version, PatchCheck: objbytes.SetVersion}.Write(mediaType, body)
	switch {
	case errors.Is(err, objbytes.ErrHasVersion), errors.Is(err, objbytes.ErrMediaType): // the API server refuses other media types
		return body, nil
	case err != nil:
		return nil, apierrors.NewBadRequest("the request body cannot be read: " + err.Error())
	}
	return pinned, nil
}
