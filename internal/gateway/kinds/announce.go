package kinds

import (
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

var (
	metaScheme = runtime.NewScheme()
	metaCodecs = serializer.NewCodecFactory(metaScheme)
)

func init() {
	metav1.AddToGroupVersion(metaScheme, schema.GroupVersion{Version: "v1"})
}

// handlers returns the handler of each discovery path, in the aggregated and the legacy format.
func (d documents) handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	versions := &metav1.APIVersions{Versions: []string{}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
	for _, group := range d.Core.Items {
		for _, version := range group.Versions {
			versions.Versions = append(versions.Versions, version.Version)
			handlers["/api/"+version.Version] = fixed{resourceList("", version)}
		}
	}
	handlers["/api"] = aggregated.WrapAggregatedDiscoveryToHandler(fixed{versions}, newAggregatedList(d.Core), nil)

	groups := &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	for _, item := range d.Groups.Items {
		group := metav1.APIGroup{Name: item.Name, ServerAddressByClientCIDRs: nil}
		for _, version := range item.Versions {
			gv := schema.GroupVersion{Group: item.Name, Version: version.Version}
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
			handlers["/apis/"+gv.String()] = fixed{resourceList(item.Name, version)}
		}
		group.PreferredVersion = group.Versions[0]
		groups.Groups = append(groups.Groups, group)
		handlers["/apis/"+item.Name] = fixed{&group}
	}
	handlers["/apis"] = aggregated.WrapAggregatedDiscoveryToHandler(fixed{groups}, newAggregatedList(d.Groups), nil)
	return handlers
}

func resourceList(group string, version apidiscoveryv2.APIVersionDiscovery) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: schema.GroupVersion{Group: group, Version: version.Version}.String(), APIResources: []metav1.APIResource{}}
	for _, r := range version.Resources {
		namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
		resource := metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: namespaced,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		setKind(&resource, r.ResponseKind, group, version.Version)
		if resource.Kind != "" || len(resource.Verbs) > 0 { // otherwise only its subresources are announced
			list.APIResources = append(list.APIResources, resource)
		}
		for _, s := range r.Subresources {
			subresource := metav1.APIResource{Name: r.Resource + "/" + s.Subresource, Namespaced: namespaced, Verbs: s.Verbs}
			setKind(&subresource, s.ResponseKind, group, version.Version)
			list.APIResources = append(list.APIResources, subresource)
		}
	}
	return list
}

// setKind sets the kind, and its group and version where they differ from those of the list.
func setKind(resource *metav1.APIResource, kind *metav1.GroupVersionKind, group, version string) {
	if kind == nil {
		return
	}
	resource.Kind = kind.Kind
	if kind.Version != "" && (kind.Group != group || kind.Version != version) {
		resource.Group, resource.Version = kind.Group, kind.Version
	}
}

// fixed serves a constant object.
type fixed struct{ object runtime.Object }

// ServeHTTP writes the object in the format the client accepts.
func (f fixed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	responsewriters.WriteObjectNegotiated(metaCodecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, f.object, false)
}
