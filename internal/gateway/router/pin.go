package router

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/objbytes"
)

// pin restricts a write to one version of an object. It is needed where a cell cannot tell that the object has begun to move. A write that names
// another version is a conflict: the version may be guessed, and be the one that the object will have when it moves. The error can be written
// after asStatus.
func pin(c *call, mediaType string, body []byte, version string) ([]byte, error) {
	write := objbytes.Pin{ResourceVersion: version, PatchCheck: objbytes.SetVersion}.Write
	switch {
	case c.Subresource == "eviction":
		write = objbytes.Pin{ResourceVersion: version}.Evict
	case c.Verb == "create" && c.Subresource != "binding": // nothing else that is created beneath an object changes the object
		return body, nil
	}
	pinned, err := write(mediaType, body)
	switch {
	case errors.Is(err, objbytes.ErrHasVersion):
		return nil, errStale
	case errors.Is(err, objbytes.ErrMediaType): // the API server refuses other media types
		return body, nil
	case err != nil:
		return nil, apierrors.NewBadRequest("the request body cannot be read: " + err.Error())
	}
	return pinned, nil
}

// namesVersion reports whether a write beneath an object concerns one version of the object only.
func namesVersion(c *call, mediaType string, body []byte) bool {
	switch {
	case c.Verb != "create":
		return false
	case c.Subresource == "eviction":
		return true // the cell refuses others
	case c.Subresource == "binding":
		_, err := objbytes.Pin{}.Write(mediaType, body)
		return errors.Is(err, objbytes.ErrHasVersion)
	default:
		return false
	}
}
