package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Announced is an immutable set of resources that discovery lists.
type Announced struct {
	// versions has the verbs of each resource, and of each resource/subresource in a limited set.
	versions map[schema.GroupVersion]map[string][]string
	// limited is set if only the listed verbs and subresources are announced.
	limited bool
	groups  map[string]bool
	marks   map[schema.GroupVersion]string
	mark    string
}

// NewAnnounced returns a set of resources with all their verbs and subresources.
func NewAnnounced(resources ...schema.GroupVersionResource) *Announced {
	a := &Announced{versions: map[schema.GroupVersion]map[string][]string{}}
	for _, resource := range resources {
		gv := resource.GroupVersion()
		if a.versions[gv] == nil {
			a.versions[gv] = map[string][]string{}
		}
		a.versions[gv][resource.Resource] = nil
	}
	return a.complete()
}

// NewLimited returns a set of resources and of subresources, named resource/subresource, with some verbs.
func NewLimited(verbs map[schema.GroupVersion]map[string][]string) *Announced {
	return (&Announced{versions: verbs, limited: true}).complete()
}

// complete sets what is derived from the resources.
func (a *Announced) complete() *Announced {
	a.groups, a.marks = map[string]bool{}, map[schema.GroupVersion]string{}
	var all []string
	for gv, resources := range a.versions {
		a.groups[gv.Group] = true
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(resources)) {
			text := name
			if a.limited {
				text += ":" + strings.Join(slices.Sorted(slices.Values(resources[name])), ",")
			}
			texts = append(texts, text)
		}
		a.marks[gv] = digest(texts)
		all = append(all, gv.String()+"="+a.marks[gv])
	}
	slices.Sort(all)
	a.mark = digest(all)
	return a
}

// Has reports whether a verb of a resource or subresource is announced.
func (a *Announced) Has(resource schema.GroupVersionResource, subresource, verb string) bool {
	name := resource.Resource
	if a.limited && subresource != "" {
		name += "/" + subresource
	}
	verbs, found := a.versions[resource.GroupVersion()][name]
	return found && (!a.limited || slices.Contains(verbs, verb))
}

// Limited reports whether only some verbs and subresources are announced.
func (a *Announced) Limited() bool { return a.limited }

// HasVersion reports whether any resource of a version of a group is announced.
func (a *Announced) HasVersion(gv schema.GroupVersion) bool { return a.versions[gv] != nil }

// HasGroup reports whether any resource of a group is announced.
func (a *Announced) HasGroup(group string) bool { return a.groups[group] }

// Mark returns a short hash of the set.
func (a *Announced) Mark() string { return a.mark }

// MarkOf returns a short hash of the part of the set in a version of a group.
func (a *Announced) MarkOf(gv schema.GroupVersion) string { return a.marks[gv] }

func digest(texts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, " ")))
	return hex.EncodeToString(sum[:4])
}
