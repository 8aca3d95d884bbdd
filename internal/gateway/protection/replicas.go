package protection

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Replicas is where the objects of a resource have their replicas.
type Replicas struct {
	// Paths are the fields that lead to them. Versions of a custom resource may name different fields: all of them count.
	Paths [][]string
	// Scaled is the path that the scale subresource of the version changes, if it has one.
	Scaled []string
	// Version is the version in which an object shows all these fields. API servers remove fields that a version does not have when they show
	// an object in it, and when they store an object that was written in it.
	Version string
}

// SpecReplicas is where the objects of most resources have their replicas.
var SpecReplicas = []string{"spec", "replicas"}

// counts are the replicas of an object at each of some paths; nil where it has none.
type counts []*int64

// countsOf returns the replicas of an object.
func countsOf(o *object, paths [][]string) (counts, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(o.data, &content); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading an object to protect: %w", err))
	}
	found := make(counts, len(paths))
	for i, path := range paths {
		if replicas, is, err := unstructured.NestedInt64(content, path...); is && err == nil {
			found[i] = &replicas
		}
	}
	return found, nil
}

// any reports whether the object has replicas at all.
func (c counts) any() bool { return slices.ContainsFunc(c, func(n *int64) bool { return n != nil }) }

// zero reports whether the object is scaled to zero.
func (c counts) zero() bool {
	return c.any() && !slices.ContainsFunc(c, func(n *int64) bool { return n != nil && *n != 0 })
}

// drops returns what is removed from each of the counts. An object that had replicas and does not say how many it has now has none: a Scale
// leaves out a zero, and a change that removes the field could otherwise begin a scale-down in two steps.
func (c counts) drops(after counts) []Drop {
	var drops []Drop
	for i, before := range c {
		if before == nil {
			continue
		}
		drop := Drop{From: *before}
		if after[i] != nil {
			drop.To = *after[i]
		}
		if drop.size() > 0 {
			drops = append(drops, drop)
		}
	}
	return drops
}

// stored returns the counts of an object that was read for a request, as it is stored.
func (g *Guard) stored(ctx context.Context, info *request.RequestInfo, o *object, replicas Replicas) (counts, error) {
	if replicas.Version != info.APIVersion {
		asked := *info
		asked.APIVersion = replicas.Version
		var err error
		if o, err = g.read(ctx, &asked); err != nil {
			return nil, err
		}
		if o == nil {
			return nil, apierrors.NewConflict(groupResource(info), info.Name, errModified)
		}
	}
	return countsOf(o, replicas.Paths)
}

// changed returns the counts after a change of an object, which a dry run has answered with after.
func (r Replicas) changed(info *request.RequestInfo, before, after *object) (counts, error) {
	if info.Subresource != "scale" {
		return countsOf(after, r.Paths)
	}
	// A Scale changes one field. Others stay if the version has them.
	counted, err := countsOf(before, r.Paths)
	if err != nil {
		return nil, err
	}
	scaled, err := countsOf(after, [][]string{SpecReplicas})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(r.Paths, func(path []string) bool { return slices.Equal(path, r.Scaled) }); i >= 0 {
		counted[i] = scaled[0]
	}
	return counted, nil
}
