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

// lookups is the number of concurrent searches when a namespace is deleted.
const lookups = 16

// errByLabel has the text that Karmada uses for this label.
var errByLabel = errors.New("This resource is protected, please make sure to remove the label: " + names.DeletionProtectedLabel) //nolint:staticcheck // the text of Karmada

// guardDelete checks the deletion of one object, and returns that object.
func (g *Guard) guardDelete(r *http.Request, info *request.RequestInfo) (*object, error) {
	kind, ok := g.kindOf(r.Context(), info)
	if !ok {
		return nil, nil
	}
	data, err := g.Objects.Get(r.Context(), info)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decode(data)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if o.protectedByLabel() {
		return nil, apierrors.NewForbidden(groupResource(info), info.Name, errByLabel)
	}
	objections := g.deletionObjections(kind.GroupKind(), o)
	if info.Resource == "namespaces" && info.APIGroup == "" {
		inside, err := g.guardInside(r.Context(), info)
		if err != nil {
			return nil, err
		}
		objections = append(objections, inside...)
	}
	return o, g.decide(r, info, "deleting it", o.glass(), objections)
}

// deletionObjections returns the objections of policies to deleting an object.
func (g *Guard) deletionObjections(kind schema.GroupKind, o *object) []objection {
	var objections []objection
	t := g.targetOf(kind, o)
	policies := g.Policies.all()
	for i := range policies {
		p := &policies[i]
		if p.deletion == nil || !p.picks(t) || (p.deletion.AllowScaledToZero && o.scaledToZero()) {
			continue
		}
		objections = append(objections, objection{p, fmt.Sprintf("it protects %s %s from deletion", kind.Kind, key(o))})
	}
	return objections
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
	byLabel, err := labels.NewRequirement(names.DeletionProtectedLabel, selection.Equals, []string{names.DeletionProtectedAlways})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	query := url.Values{"labelSelector": {chosen.Add(*byLabel).String()}}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	found, err := g.Objects.Find(ctx, resource, namespace, query, 1)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		o, err := decode(found[0])
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return nil, apierrors.NewForbidden(resource.GroupResource(), o.Metadata.Name, errByLabel)
	}
	return g.searchPolicies(ctx, resource, namespace, chosen, fieldSelector)
}

// searchPolicies lists the objects that policies select, except for policies that cannot select any of the resource.
func (g *Guard) searchPolicies(ctx context.Context, resource kinds.Resource, namespace string, chosen labels.Selector, fieldSelector string) ([]objection, error) {
	kind := schema.GroupKind{Group: resource.Group, Kind: resource.Kind}
	of := target{GroupKind: kind, namespace: namespace, namespaceLabels: g.Policies.namespaceLabels(namespace), unknownNamespace: g.Policies.namespacesUnknown()}
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
			requirements, _ := s.labels.Requirements()
			query := url.Values{"labelSelector": {chosen.Add(requirements...).String()}}
			if fieldSelector != "" {
				query.Set("fieldSelector", fieldSelector)
			}
			limit := 1
			if p.deletion.AllowScaledToZero {
				limit = 0
			}
			found, err := g.Objects.Find(ctx, resource, namespace, query, limit)
			if err != nil {
				return nil, err
			}
			for _, data := range found {
				o, err := decode(data)
				if err != nil {
					return nil, apierrors.NewInternalError(err)
				}
				if !p.deletion.AllowScaledToZero || !o.scaledToZero() {
					objections = append(objections, objection{p, fmt.Sprintf("it protects %s %s from deletion", kind.Kind, key(o))})
					break
				}
			}
		}
	}
	return objections, nil
}

// guardInside returns the objections to deleting all objects of a namespace.
func (g *Guard) guardInside(ctx context.Context, info *request.RequestInfo) ([]objection, error) {
	var mu sync.Mutex
	var objections []objection
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookups)
	for _, resource := range g.Objects.Namespaced() {
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
	err := group.Wait()
	return objections, err
}

func (g *Guard) kindOf(ctx context.Context, info *request.RequestInfo) (schema.GroupVersionKind, bool) {
	resource, ok := g.Objects.Resource(ctx, gvr(info))
	return schema.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: resource.Kind}, ok
}

func gvr(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

func groupResource(info *request.RequestInfo) schema.GroupResource { return gvr(info).GroupResource() }
