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

// mergedDigits is the length of the shortest position over all cells.
const mergedDigits = 30

// mayHoldPosition reports whether a body can hold a position over all cells, which is a long run of digits in any encoding. Only then
// is it worth a closer look.
func mayHoldPosition(body []byte) bool {
	// Of every run at least one of these places is inside.
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

// rewriteBody translates the positions in a body into resourceVersions of a cell.
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

// versionIn returns the resourceVersion in a cell that a client means. What is no position is left for the API server to judge.
func (rt *Router) versionIn(view *topology.View, cell slots.Index, version string) (string, error) {
	kind, err := position.Classify(version)
	if err != nil || kind != position.Merged {
		return version, nil //nolint:nilerr // the API server answers what it cannot read
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

// asStatus makes an error one that can be answered with.
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
