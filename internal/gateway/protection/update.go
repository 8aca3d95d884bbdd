package protection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/internal/gateway/inner"
	"github.com/cellplane/cellplane/internal/objbytes"
)

// errModified is worded as API servers word it.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// guardUpdate checks a change of an object, and returns that object if policies are concerned: those that protect it from being scaled
// down, and those that would no longer select it. A change of a definition may hide all objects of its kind.
func (g *Guard) guardUpdate(c *change) (*object, error) {
	r, info := c.Request, c.info
	c.unpin()
	before, err := g.read(r.Context(), info)
	if err != nil {
		return nil, err
	}
	if before == nil { // a patch may create it
		return nil, c.pin(nil)
	}
	concerned, err := g.concernedBy(r.Context(), info, before)
	if err != nil {
		return nil, err
	}
	if !concerned.any() {
		return g.pinUnconcerned(c, before), nil
	}
	// The dry run uses the pinned request, which is the one that will be sent.
	if err := c.pin(before); err != nil && !errors.Is(err, objbytes.ErrHasVersion) {
		return nil, err
	}
	after, err := g.dryRun(c)
	if err != nil {
		return nil, err
	}
	if after == nil {
		return before, nil
	}
	// A change that names a version itself was rehearsed with that version, which need not be the one that was read.
	if !c.pinned && after.Metadata.ResourceVersion != before.Metadata.ResourceVersion {
		return nil, apierrors.NewConflict(groupResource(info), info.Name, errModified)
	}
	if err := g.guardSelection(c, before, after, concerned.selecting); err != nil {
		return nil, err
	}
	if isDefinition(info) {
		if err := g.guardServed(c, before, after); err != nil {
			return nil, err
		}
	}
	return before, g.guardReplicas(c, before, after, concerned)
}

// pinUnconcerned restricts a change to the version of an object by which no policy was concerned, and returns that. Otherwise the object could
// become protected, or be replaced by a protected one, before it is changed. If no policy can select such an object, nothing is done.
func (g *Guard) pinUnconcerned(c *change, o *object) *object {
	t := g.targetOf(o.groupKind(c.info), o)
	if !slices.ContainsFunc(g.Policies.all(), func(p policy) bool { return p.mayConcern(t) }) {
		return nil
	}
	c.pinTemplate(o)
	return o
}

// concerned are the policies that a change of an object may violate.
type concerned struct {
	scaling, selecting []*policy
	definition         bool
	// replicas is where the object has its replicas, and counts are those that are stored. They are set if there are policies scaling.
	replicas Replicas
	counts   counts
}

func (c concerned) any() bool { return len(c.scaling)+len(c.selecting) > 0 || c.definition }

// concernedBy returns the policies that a change of an object may violate, and counts its replicas.
func (g *Guard) concernedBy(ctx context.Context, info *request.RequestInfo, o *object) (concerned, error) {
	t := g.targetOf(o.groupKind(info), o)
	c := concerned{definition: isDefinition(info)}
	if scaling := g.scaleDownPolicies(t); len(scaling) > 0 {
		var err error
		if c.replicas, err = g.Objects.Replicas(ctx, gvr(info)); err != nil {
			return c, err
		}
		if c.counts, err = g.stored(ctx, info, o, c.replicas); err != nil {
			return c, err
		}
		if c.counts.any() {
			c.scaling = scaling
		}
	}
	if info.Subresource == "scale" {
		return c, nil // a Scale has no labels
	}
	policies := g.Policies.all()
	for i := range policies {
		if p := &policies[i]; p.selectsByLabels(t) {
			c.selecting = append(c.selecting, p)
		}
	}
	return c, nil
}

// checksUpdates reports whether policies may be concerned by a change of any object of a request's resource.
func (g *Guard) checksUpdates(info *request.RequestInfo) bool {
	if isDefinition(info) || finalizes(info) {
		return true
	}
	policies := g.Policies.all()
	return slices.ContainsFunc(policies, func(p policy) bool { return p.scaleDown != nil || p.selective })
}

// guardSelection checks that policies which select an object by its labels still do. Otherwise anyone who may change the object could
// take its protection away.
func (g *Guard) guardSelection(c *change, before, after *object, policies []*policy) error {
	if len(policies) == 0 {
		return nil
	}
	kind := before.groupKind(c.info)
	was, is := g.targetOf(kind, before), g.targetOf(kind, after)
	var objections []objection
	for _, p := range policies {
		if p.releases(was, is) {
			objections = append(objections, objection{p, fmt.Sprintf("it would no longer protect %s %s", kind.Kind, key(before))})
		}
	}
	return g.decide(c.Request, c.info, "changing its labels", before.glass(), objections)
}

// guardServed checks that a change of a definition does not hide protected objects, and does not change what policies say: API servers leave out
// the fields that a schema does not have, and add its defaults.
func (g *Guard) guardServed(c *change, before, after *object) error {
	was, err := decodeDefinition(before)
	if err != nil {
		return err
	}
	if was.ofPolicies() && len(g.Policies.all()) > 0 {
		switch same, err := sameSpec(before, after); {
		case err != nil:
			return err
		case !same:
			return apierrors.NewForbidden(groupResource(c.info), c.info.Name, errors.New("it defines what protects objects; delete the ProtectionPolicies first"))
		}
	}
	is, err := decodeDefinition(after)
	if err != nil {
		return err
	}
	if !was.serves() || is.serves() {
		return nil
	}
	objections, err := g.insideDefinition(c.Context(), c.info, before)
	if err != nil {
		return err
	}
	return g.decide(c.Request, c.info, "serving no version of it", before.glass(), objections)
}

// sameSpec reports whether two objects have the same spec.
func sameSpec(a, b *object) (bool, error) {
	var specs [2]struct {
		Spec map[string]any `json:"spec"`
	}
	for i, o := range []*object{a, b} {
		if err := utiljson.Unmarshal(o.data, &specs[i]); err != nil {
			return false, apierrors.NewInternalError(fmt.Errorf("reading a definition to protect: %w", err))
		}
	}
	return reflect.DeepEqual(specs[0], specs[1]), nil
}

// dryRun returns the object as the request would change it. It returns nil if the request is pinned to a version that the object no
// longer has: then it will fail, or be checked again. A request that fails for any other reason is not forwarded, as only what has been
// checked may be. The error can be sent to a client.
func (g *Guard) dryRun(c *change) (*object, error) {
	dryRun := c.send().Clone(c.Context())
	query := dryRun.URL.Query()
	query.Set("dryRun", "All")
	dryRun.URL.RawQuery = query.Encode()
	dryRun.Header.Set("Accept", "application/json")
	dryRun.Header.Del("Accept-Encoding")
	answer := inner.Do(g.Next, dryRun)
	switch code := answer.Code(); {
	case code == http.StatusOK || code == http.StatusCreated:
		o, err := decode(answer.Body())
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return o, nil
	case code >= http.StatusInternalServerError || code == http.StatusTooManyRequests:
		return nil, apierrors.NewServiceUnavailable("the dry run that checks protected replicas failed; try again")
	case c.pinned && (code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusNotFound):
		return nil, nil
	default:
		return nil, answer.Err()
	}
}
