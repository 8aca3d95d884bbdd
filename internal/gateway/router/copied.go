package router

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/position"
	"github.com/cellplane/cellplane/internal/routing"
	"github.com/cellplane/cellplane/internal/slots"
)

// copied returns the resourceVersion of an object in a cell for a version that it had in another cell, before it moved. It returns
// errStale if a client has changed the object since, or if the cells do not remember so far back: API servers keep some minutes.
//
// The mover changes an object four times: the original is frozen and given up, the copy is made and activated. Only the mover changes it
// in between, except that a request for its scale may slip in. So the version is that of the object if the last change of the copy was its
// activation, and the original was frozen at exactly the version. One of the frozen object does not count: a client that has it would
// write the label of the mover back.
func (rt *Router) copied(ctx context.Context, c *call, cell slots.Index, name string, v position.Version) (string, error) {
	former, found := c.view.Numbered(v.Cell)
	if !found || name == "" {
		return "", errStale
	}
	present, err := rt.metadata(ctx, c, cell, name)
	if err != nil {
		return "", staleUnless(err)
	}
	from, given, moved := routing.ParsePlace(present.Annotations[names.MovedFromAnnotation])
	revision, err := strconv.ParseUint(present.ResourceVersion, 10, 64)
	if err != nil || !moved || from != c.view.Name(former) {
		return "", errStale
	}
	frozenIn := func(cell slots.Index, at uint64) (*metav1.PartialObjectMetadata, error) {
		before, err := rt.metadataAt(ctx, c, cell, name, at-1)
		if err == nil && (before.UID != present.UID || before.Labels[names.RebalanceStatusLabel] != names.RebalanceMigrating) {
			err = errStale
		}
		return before, err
	}
	if _, err := frozenIn(cell, revision); err != nil {
		return "", err
	}
	frozen, err := frozenIn(former, given)
	if err != nil {
		return "", err
	}
	frozenAt, err := strconv.ParseUint(frozen.ResourceVersion, 10, 64)
	if err != nil {
		return "", errStale
	}
	original, err := rt.metadataAt(ctx, c, former, name, frozenAt-1)
	if err != nil {
		return "", err
	}
	if original.UID != present.UID || original.Labels[names.RebalanceStatusLabel] != "" || original.ResourceVersion != strconv.FormatUint(v.Revision, 10) {
		return "", errStale
	}
	return present.ResourceVersion, nil
}

// metadataAt returns the metadata that an object had at a revision of a cell. It returns errStale if there was none, or if that is no
// longer known.
func (rt *Router) metadataAt(ctx context.Context, c *call, cell slots.Index, name string, revision uint64) (*metav1.PartialObjectMetadata, error) {
	data, err := rt.inCell(ctx, c, cell, http.MethodGet, c.collectionPath(), url.Values{
		"fieldSelector":        {"metadata.name=" + name},
		"resourceVersion":      {strconv.FormatUint(revision, 10)},
		"resourceVersionMatch": {string(metav1.ResourceVersionMatchExact)},
	}, nil)
	if err != nil {
		return nil, staleUnless(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := utiljson.Unmarshal(data, &list); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("decoding a list of %s: %w", c.view.Name(cell), err))
	}
	if len(list.Items) != 1 {
		return nil, errStale
	}
	return &list.Items[0], nil
}

// staleUnless returns errStale for an error which says that something is not there any more.
func staleUnless(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
		return errStale
	}
	return err
}
