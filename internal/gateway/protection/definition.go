package protection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/endpoints/request"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/kinds"
)

// isDefinition reports whether a request is for a CustomResourceDefinition. API servers delete all objects of a definition with it.
func isDefinition(info *request.RequestInfo) bool {
	return info.APIGroup == apiextensionsv1.GroupName && info.Resource == "customresourcedefinitions"
}

// definition has the fields of a CustomResourceDefinition that protection needs.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
}

func decodeDefinition(o *object) (*definition, error) {
	d := &definition{}
	if err := utiljson.Unmarshal(o.data, d); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("reading a definition to protect: %w", err))
	}
	return d, nil
}

// serves reports whether a version is served.
func (d *definition) serves() bool {
	for _, version := range d.Spec.Versions {
		if version.Served {
			return true
		}
	}
	return false
}

// ofPolicies reports whether it defines ProtectionPolicies.
func (d *definition) ofPolicies() bool {
	return d.Spec.Group == cellplanev1alpha1.GroupName && d.Spec.Names.Plural == "protectionpolicies"
}

// resources returns the resource in each of its versions. One that the hub does not serve any more may still be served by a cell.
func (d *definition) resources() []kinds.Resource {
	var resources []kinds.Resource
	for _, version := range d.Spec.Versions {
		resources = append(resources, kinds.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: d.Spec.Group, Version: version.Name, Resource: d.Spec.Names.Plural},
			Kind:                 d.Spec.Names.Kind,
			Namespaced:           d.Spec.Scope == string(apiextensionsv1.NamespaceScoped),
		})
	}
	return resources
}

// insideDefinition returns the objections to deleting all objects of a definition.
func (g *Guard) insideDefinition(ctx context.Context, info *request.RequestInfo, o *object) ([]objection, error) {
	d, err := decodeDefinition(o)
	if err != nil {
		return nil, err
	}
	if !d.serves() {
		return nil, apierrors.NewForbidden(groupResource(info), info.Name, fmt.Errorf("no version of it is served, so its objects cannot be checked for protection; serve a version first"))
	}
	if d.ofPolicies() && len(g.Policies.all()) > 0 {
		return nil, apierrors.NewForbidden(groupResource(info), info.Name, errors.New("it defines what protects objects; delete the ProtectionPolicies first"))
	}
	var mu sync.Mutex
	var objections []objection
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookups)
	for _, resource := range d.resources() {
		for _, search := range g.searches(resource) {
			group.Go(func() error {
				found, err := search(ctx)
				if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
					return nil // this version is not served
				}
				if apierrors.IsForbidden(err) {
					return apierrors.NewForbidden(groupResource(info), info.Name, fmt.Errorf("it defines a protected object: %w", err))
				}
				mu.Lock()
				defer mu.Unlock()
				objections = append(objections, found...)
				return err
			})
		}
	}
	err = group.Wait()
	return objections, err
}

// searches returns the searches for protected objects of a resource in all namespaces.
func (g *Guard) searches(resource kinds.Resource) []func(context.Context) ([]objection, error) {
	var searches []func(context.Context) ([]objection, error)
	for _, namespace := range everywhere(resource) {
		searches = append(searches, func(ctx context.Context) ([]objection, error) {
			return nil, g.searchLabel(ctx, resource, namespace, labels.Everything(), "")
		})
	}
	policies := g.Policies.all()
	for i := range policies {
		p := &policies[i]
		if p.deletion == nil {
			continue
		}
		for _, s := range p.selectors {
			for _, namespace := range g.namespacesOf(s, resource) {
				searches = append(searches, func(ctx context.Context) ([]objection, error) {
					return g.searchSelector(ctx, p, s, resource, namespace, labels.Everything(), "")
				})
			}
		}
	}
	return searches
}

// everywhere are the namespaces to list for all objects of a resource. A list over all namespaces leaves out those of the control plane.
func everywhere(resource kinds.Resource) []string {
	if !resource.Namespaced {
		return []string{metav1.NamespaceAll}
	}
	return []string{metav1.NamespaceAll, names.SystemNamespace, names.ClusterNamespace}
}

// namespacesOf returns the namespaces in which a selector may match objects of a resource.
func (g *Guard) namespacesOf(s selector, resource kinds.Resource) []string {
	of := target{GroupKind: kindOf(resource), unknownNamespace: g.Policies.namespacesUnknown()}
	switch {
	case !s.names(of.GroupKind):
		return nil
	case !resource.Namespaced:
		if s.mayPick(of) {
			return everywhere(resource)
		}
		return nil
	case len(s.namespaces) > 0:
		return slices.DeleteFunc(slices.Clone(s.namespaces), func(namespace string) bool {
			of.namespace, of.namespaceLabels = namespace, g.Policies.namespaceLabels(namespace)
			return !s.mayPick(of)
		})
	case s.namespaceLabels.Empty() || of.unknownNamespace:
		return everywhere(resource)
	default:
		return g.Policies.namespacesWith(s.namespaceLabels)
	}
}
