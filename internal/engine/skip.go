package engine

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// skipped compiles a list of groups ("apps"), versions of groups ("apps/v1") and kinds ("apps/v1/Deployment", or
// several as "apps/v1/Deployment,StatefulSet").
func skipped(apis []string) func(schema.GroupVersionKind) bool {
	skip := map[string]bool{}
	for _, api := range apis {
		parts := strings.SplitN(strings.TrimSpace(api), "/", 3)
		if len(parts) < 3 {
			skip[strings.Join(parts, "/")] = true
			continue
		}
		for kind := range strings.SplitSeq(parts[2], ",") {
			skip[parts[0]+"/"+parts[1]+"/"+strings.TrimSpace(kind)] = true
		}
	}
	return func(gvk schema.GroupVersionKind) bool {
		version := gvk.Group + "/" + gvk.Version
		return skip[version] || skip[version+"/"+gvk.Kind] || (gvk.Group != "" && skip[gvk.Group])
	}
}
