package router

import (
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// mergedDigits is the length of the shortest merged position.
const mergedDigits = 30

// mayHoldPosition reports whether a body can contain a merged position, which is a long run of digits in any encoding. Other bodies need
// not be decoded.
func mayHoldPosition(body []byte) bool {
	// Every run of that length covers one of these indexes.
	for i := mergedDigits - 1; i < len(body); i += mergedDigits {
		if !isDigit(body[i]) {
			continue
		}
		start, end := i, i+1
		for start > 0 && isDigit(body[start-1]) {
			start--
		}
		for end < len(body) && isDigit(body[end]) {
			end++
		}
		if end-start >= mergedDigits {
			return true
		}
	}
	return false
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// rewriteBody translates merged positions in a body into resourceVersions of a cell.
func (rt *Router) rewriteBody(kind splice.Body, contentType string, body []byte, view *topology.View, cell slots.Index) ([]byte, error) {
	if !mayHoldPosition(body) {
		return body, nil
	}
	rewritten, err := kind.Rewrite(contentType, body, func(version string) (string, error) {
		return rt.versionIn(view, cell, version)
	})
	if errors.Is(err, splice.ErrUnsupported) {
		return nil, unsupportedMediaType(err.Error())
	}
	return rewritten, err
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// versionIn translates a merged position into the resourceVersion of a cell. Anything else is left to the API server.
func (rt *Router) versionIn(view *topology.View, cell slots.Index, version string) (string, error) {
	kind, err := position.Classify(version)
	if err != nil || kind != position.Merged {
		return version, nil //nolint:nilerr // the API server refuses what it cannot read
	}
	p, err := position.Parse(version)
	if err != nil {
		return "", err
	}
	carried, err := rt.Topology.Carry(p, view)
	if err != nil || carried.Versions[cell] == 0 {
		return "", errStale
	}
	return strconv.FormatUint(carried.Versions[cell], 10), nil
}

// asStatus converts an error into one that can be written.
func asStatus(err error, c *call) error {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return err
	case errors.Is(err, errStale):
		return apierrors.NewConflict(c.groupResource(), c.Name, errStale)
	default:
		return apierrors.NewBadRequest(err.Error())
	}
}
