package atrest

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cellplane/cellplane/internal/placement"
)

// ErrWeaker means that an object that is encrypted in one cell would be stored unencrypted in another.
var ErrWeaker = errors.New("the copy would not be encrypted")

// other stands for all resources of a group, and all groups, that no configuration names.
const other = "(other)"

// Weaker names a resource of objects, or a pattern of several, that one store encrypts and another does not, if they are divided among cells.
func Weaker(from, to *Keys) (resources string, weaker bool) {
	for _, resource := range append(from.named(), to.named()...) {
		if isDivided(resource) && from.mayEncrypt(resource) && !to.encrypts(resource) {
			return strings.ReplaceAll(resource.String(), other, "*"), true
		}
	}
	return "", false
}

// named returns one resource for each pattern of a configuration.
func (k *Keys) named() []schema.GroupResource {
	if k == nil {
		return nil
	}
	var all []schema.GroupResource
	for i := range k.given.Resources {
		for _, name := range k.given.Resources[i].Resources {
			resource := schema.ParseGroupResource(name)
			if resource.Group == "*" {
				resource.Group = other
			}
			if resource.Resource == "*" {
				resource.Resource = other
			}
			all = append(all, resource)
		}
	}
	return all
}

// clusterScoped are built-in resources without a namespace. Each cell has its own.
var clusterScoped = map[schema.GroupResource]bool{
	{Resource: "nodes"}:                                        true,
	{Resource: "persistentvolumes"}:                            true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}: true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: true,
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:                 true,
	{Group: "networking.k8s.io", Resource: "ingressclasses"}:                               true,
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:                                     true,
	{Group: "scheduling.k8s.io", Resource: "priorityclasses"}:                              true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}:                                  true,
}

// isDivided reports whether cells hold shares of a resource. Events are written anywhere, and neither move nor are copied.
func isDivided(resource schema.GroupResource) bool {
	events := resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io")
	return !events && !clusterScoped[resource] && placement.InNamespace(resource, "default") != placement.OnHub
}
