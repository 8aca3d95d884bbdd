package protection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// lookups is the number of concurrent searches when a namespace or a definition is deleted.
const lookups = 16

// errByLabel has the text that Karmada uses for this label.
var errByLabel = errors.New("This resource is protected, please make sure to remove the label: " + names.DeletionProtectedLabel) //nolint:staticcheck // the text of Karmada

// guardDelete checks the deletion of one object, and returns that object.
func (g *Guard) guardDelete(r *http.Request, info *request.RequestInfo) (*object, error) {
	o, err := g.read(r.Context(), info)
	switch {
	case err != nil:
		return nil, err
	case o == nil && evicts(info):
		return nil, apierrors.NewNotFound(groupResource(info), info.Name)
	case o == nil:
		return nil, nil
	case o.protectedByLabel():
		return nil, apierrors.NewForbidden(groupResource(info), info.Name, errByLabel)
	}
	objections, err := g.deletionObjections(r.Context(), info, o)
	if err != nil {
		return nil, err
	}
	inside, err := g.guardInside(r.Context(), info, o)
	if err != nil {
		return nil, err
	}
	return o, g.decide(r, info, "deleting it", o.glass(), append(objections, inside...))
}

// guardInside returns the objections to deleting what an object contains: a namespace its objects, and a definition those of its kind.
func (g *Guard) guardInside(ctx context.Context, info *request.RequestInfo, o *object) ([]objection, error) {
	switch {
	case info.Resource == "namespaces" && info.APIGroup == "":
		return g.insideNamespace(ctx, info)
	case isDefinition(info):
		return g.insideDefinition(ctx, info, o)
	default:
		return nil, nil
	}
}

// namespaceController is the controller that empties namespaces through the gateway.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"

// guardFinalize checks a request that may remove a namespace while it has contents. The namespace controller only removes one that it has found
// empty; what it deleted there was checked object by object, and nothing was created since.
func (g *Guard) guardFinalize(c *change) error {
	if caller, known := request.UserFrom(c.Context()); known && caller.GetName() == namespaceController {
		return nil
	}
	o, err := g.read(c.Context(), c.info)
	if err != nil || o == nil || o.Metadata.DeletionTimestamp == "" {
		return err
	}
	objections, err := g.insideNamespace(c.Context(), c.info)
	if err != nil {
		return err
	}
	return g.decide(c.Request, c.info, "removing the namespace before its contents", o.glass(), objections)
}

// deletionObjections returns the objections of policies to deleting an object.
func (g *Guard) deletionObjections(ctx context.Context, info *request.RequestInfo, o *object) ([]objection, error) {
	var objections []objection
	kind := o.groupKind(info)
	t := g.targetOf(kind, o)
	policies := g.Policies.all()
	for i := range policies {
		p := &policies[i]
		if p.deletion == nil || !p.picks(t) {
			continue
		}
		if p.deletion.AllowScaledToZero {
			replicas, err := g.Objects.Replicas(ctx, gvr(info))
			if err != nil {
				return nil, err
			}
			stored, err := g.stored(ctx, info, o, replicas)
			if err != nil {
				return nil, err
			}
			if stored.zero() {
				continue
			}
		}
		objections = append(objections, p.objectsTo(kind, o))
	}
	return objections, nil
}

// objectsTo is the objection to deleting an object.
func (p *policy) objectsTo(kind schema.GroupKind, o *object) objection {
	return objection{p, fmt.Sprintf("it protects %s %s from deletion", kind.Kind, key(o))}
}

func key(o *object) string {
	if o.Metadata.Namespace == "" {
		return o.Metadata.Name
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name
}

// search returns the objections to deleting the objects that selectors match. An object that is protected by its label is an error.
func (g *Guard) search(ctx context.Context, resource kinds.Resource, namespace, labelSelector, fieldSelector string) ([]objection, error) {
	chosen, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, nil //nolint:nilerr // the API server refuses it
	}
	if err := g.searchLabel(ctx, resource, namespace, chosen, fieldSelector); err != nil {
		return nil, err
	}
	return g.searchPolicies(ctx, resource, namespace, chosen, fieldSelector)
}

// searchLabel returns an error if one of the objects that selectors match is protected by its label.
func (g *Guard) searchLabel(ctx context.Context, resource kinds.Resource, namespace string, chosen labels.Selector, fieldSelector string) error {
	byLabel, err := labels.NewRequirement(names.DeletionProtectedLabel, selection.Equals, []string{names.DeletionProtectedAlways})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	found, err := g.Objects.Find(ctx, resource, namespace, selecting(chosen.Add(*byLabel), fieldSelector), 1)
	if err != nil || len(found) == 0 {
		return err
	}
	o, err := decode(found[0])
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return apierrors.NewForbidden(resource.GroupResource(), o.Metadata.Name, errByLabel)
}

func selecting(chosen labels.Selector, fieldSelector string) url.Values {
	query := url.Values{"labelSelector": {chosen.String()}}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	return query
}

// searchPolicies lists the objects that policies select, except for policies that cannot select any of the resource.
func (g *Guard) searchPolicies(ctx context.Context, resource kinds.Resource, namespace string, chosen labels.Selector, fieldSelector string) ([]objection, error) {
	of := target{GroupKind: kindOf(resource), namespace: namespace, namespaceLabels: g.Policies.namespaceLabels(namespace), unknownNamespace: g.Policies.namespacesUnknown()}
	var objections []objection
	policies := g.Policies.all()
	for i := range policies {
		p := &policies[i]
		if p.deletion == nil {
			continue
		}
		for _, s := range p.selectors {
			if !s.mayPick(of) {
				continue
			}
			found, err := g.searchSelector(ctx, p, s, resource, namespace, chosen, fieldSelector)
			if err != nil {
				return nil, err
			}
			objections = append(objections, found...)
		}
	}
	return objections, nil
}

// searchSelector returns the objection of a policy to deleting the objects of one of its selectors, of which one object is enough.
func (g *Guard) searchSelector(ctx context.Context, p *policy, s selector, resource kinds.Resource, namespace string, chosen labels.Selector, fieldSelector string) ([]objection, error) {
	requirements, _ := s.labels.Requirements()
	limit := 1
	var replicas Replicas
	if p.deletion.AllowScaledToZero {
		var err error
		if replicas, err = g.Objects.Replicas(ctx, resource.GroupVersionResource); err != nil {
			return nil, err
		}
		resource.Version, limit = replicas.Version, 0
	}
	found, err := g.Objects.Find(ctx, resource, namespace, selecting(chosen.Add(requirements...), fieldSelector), limit)
	if err != nil {
		return nil, err
	}
	for _, data := range found {
		o, err := decode(data)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if p.deletion.AllowScaledToZero {
			counted, err := countsOf(o, replicas.Paths)
			if err != nil {
				return nil, err
			}
			if counted.zero() {
				continue
			}
		}
		return []objection{p.objectsTo(kindOf(resource), o)}, nil
	}
	return nil, nil
}

// insideNamespace returns the objections to deleting all objects of a namespace.
func (g *Guard) insideNamespace(ctx context.Context, info *request.RequestInfo) ([]objection, error) {
	resources, err := g.Objects.Namespaced(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var objections []objection
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookups)
	for _, resource := range resources {
		group.Go(func() error {
			found, err := g.search(ctx, resource, info.Name, "", "")
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				return nil // the kind is being removed
			}
			if apierrors.IsForbidden(err) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, info.Name, fmt.Errorf("it contains a protected object: %w", err))
			}
			mu.Lock()
			defer mu.Unlock()
			objections = append(objections, found...)
			return err
		})
	}
	err = group.Wait()
	return objections, err
}

func kindOf(resource kinds.Resource) schema.GroupKind {
	return schema.GroupKind{Group: resource.Group, Kind: resource.Kind}
}

func gvr(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

func groupResource(info *request.RequestInfo) schema.GroupResource { return gvr(info).GroupResource() }
