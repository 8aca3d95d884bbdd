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
	versions map[schema.GroupVersion]map[string]bool
	groups   map[string]bool
	marks    map[schema.GroupVersion]string
	mark     string
}

// NewAnnounced returns a set of resources.
func NewAnnounced(resources ...schema.GroupVersionResource) *Announced {
	a := &Announced{versions: map[schema.GroupVersion]map[string]bool{}, groups: map[string]bool{}, marks: map[schema.GroupVersion]string{}}
	for _, resource := range resources {
		gv := resource.GroupVersion()
		if a.versions[gv] == nil {
			a.versions[gv] = map[string]bool{}
		}
		a.versions[gv][resource.Resource] = true
		a.groups[gv.Group] = true
	}
	var all []string
	for gv, resources := range a.versions {
		a.marks[gv] = digest(slices.Sorted(maps.Keys(resources)))
		all = append(all, gv.String()+"="+a.marks[gv])
	}
	slices.Sort(all)
	a.mark = digest(all)
	return a
}

// Has reports whether a resource is announced.
func (a *Announced) Has(resource schema.GroupVersionResource) bool {
	return a.versions[resource.GroupVersion()][resource.Resource]
}

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
