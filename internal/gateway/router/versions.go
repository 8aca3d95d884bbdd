package router

import (
	"context"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/slots"
	"github.com/cellplane/cellplane/internal/splice"
)

// fewestDigits is the length of the shortest version of an object. Positions are longer.
const fewestDigits = 16

// mayHoldVersion reports whether a body can contain a version or a position, which is a long run of digits in any encoding. Other
// bodies need not be decoded.
func mayHoldVersion(body []byte) bool {
	// Every run of that length covers one of these indexes.
	for i := fewestDigits - 1; i < len(body); i += fewestDigits {
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
		if end-start >= fewestDigits {
			return true
		}
	}
	return false
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// rewriteBody translates the versions in a body into resourceVersions of a cell.
func (rt *Router) rewriteBody(kind splice.Body, contentType string, body []byte, translate splice.Translate) ([]byte, error) {
	if !mayHoldVersion(body) {
		return body, nil
	}
	rewritten, err := kind.Rewrite(contentType, body, translate)
	if errors.Is(err, splice.ErrUnsupported) {
		return nil, unsupportedMediaType(err.Error())
	}
	return rewritten, err
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// versionIn translates the version of the call's object, or a position, into the resourceVersion of a cell. Anything else is left to
// the API server: a plain resourceVersion is one of the cell, as gateways showed them before there were versions.
func (rt *Router) versionIn(ctx context.Context, c *call, cell slots.Index, version string) (string, error) {
	kind, err := position.Classify(version)
	switch {
	case err != nil:
		return version, nil //nolint:nilerr // the API server refuses what it cannot read
	case kind == position.Object:
		v, err := position.ParseVersion(version)
		switch {
		case err != nil:
			return "", errStale
		case v.Cell == c.view.Number(cell):
			return strconv.FormatUint(v.Revision, 10), nil
		default:
			return rt.copied(ctx, c, cell, c.Name, v)
		}
	case kind != position.Merged:
		return version, nil
	}
	p, err := position.Parse(version)
	if err != nil {
		return "", err
	}
	carried, err := rt.Topology.Carry(p, c.view)
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
