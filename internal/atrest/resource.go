package atrest

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// renamed are the built-in resources whose keys have another name than the resource.
var renamed = map[string]schema.GroupResource{
	"controllers":        {Resource: "replicationcontrollers"},
	"minions":            {Resource: "nodes"},
	"services/endpoints": {Resource: "endpoints"},
	"services/specs":     {Resource: "services"},
	"ingress":            {Group: "networking.k8s.io", Resource: "ingresses"},
}

// legacyGroup holds only resources that have moved to other groups.
const legacyGroup = "extensions"

// builtIn are the groups of the built-in resources, by resource.
var builtIn = sync.OnceValue(func() map[string]string {
	groups := map[string]string{}
	for kind := range clientgoscheme.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		// Events are in two groups, and stored as those of the core.
		if known, found := groups[plural.Resource]; found && (kind.Group == legacyGroup || known != legacyGroup && kind.Group != "") {
			continue
		}
		groups[plural.Resource] = kind.Group
	}
	return groups
})

// ResourceOf returns the resource of the object with a key, without the prefix of the store. It is not found if the key is not that of an
// object, or that of a kind of a later version of Kubernetes.
func ResourceOf(relative string) (resource schema.GroupResource, found bool) {
	first, rest, _ := strings.Cut(relative, "/")
	second, _, _ := strings.Cut(rest, "/")
	if strings.Contains(first, ".") { // the group of a custom resource
		return schema.GroupResource{Group: first, Resource: second}, second != ""
	}
	if resource, found = renamed[first]; found {
		return resource, true
	}
	if resource, found = renamed[first+"/"+second]; found {
		return resource, true
	}
	group, found := builtIn()[first]
	return schema.GroupResource{Group: group, Resource: first}, found
}
