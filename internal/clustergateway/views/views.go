// Package views knows the kinds of member objects that can be shown, and under which groups and versions they are served. Gateways and
// cluster-gateways have to agree about them.
package views

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ContestedHeader is set in requests for watches by gateways that merge several shares of the clusters. They are told of names that objects of several
// clusters have by DELETED events with the annotation names.ContestedAnnotation, and look up which of them is shown.
const ContestedHeader = "Cellplane-Contested"

// View is a kind of member objects.
type View struct {
	// Resource is what members are asked for.
	Resource schema.GroupVersionResource
	// Aliases are other groups and versions under which the same objects are served.
	Aliases []schema.GroupVersionResource
	// Templates tells whether the federation has objects of the kind itself, which are shown while there is none in a member.
	Templates bool
}

// Default returns the kinds that are member views unless something else is said.
func Default() []View { return slices.Clone(known) }

// known are the kinds that can be views. What selectors may ask for and what a Table shows is known of them.
var known = []View{
	{Resource: core("pods"), Templates: true},
	{Resource: core("events"), Templates: true, Aliases: []schema.GroupVersionResource{{Group: "events.k8s.io", Version: "v1", Resource: "events"}}},
	{Resource: core("nodes")},
	{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, Templates: true},
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// Parse returns the views of the given names, which are written as resource.group.
func Parse(names []string) ([]View, error) {
	var chosen []View
	for _, name := range names {
		wanted := schema.ParseGroupResource(name)
		i := slices.IndexFunc(known, func(v View) bool { return v.Resource.GroupResource() == wanted })
		if i < 0 {
			return nil, fmt.Errorf("%q cannot be a member view; those that can are %s", name, strings.Join(Names(known), ", "))
		}
		if !slices.ContainsFunc(chosen, func(v View) bool { return v.Resource == known[i].Resource }) {
			chosen = append(chosen, known[i])
		}
	}
	return chosen, nil
}

// Names returns the names that Parse understands.
func Names(views []View) []string {
	names := make([]string, len(views))
	for i, v := range views {
		names[i] = v.Resource.GroupResource().String()
	}
	return names
}

// Path returns where the API serves all objects of a resource.
func Path(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return "/api/" + resource.Version + "/" + resource.Resource
	}
	return "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
}
