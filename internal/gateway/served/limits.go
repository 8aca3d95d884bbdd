package served

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
)

// all matches every API group, resource or verb.
const all = "*"

// Limits is an immutable set of ServedAPIs.
type Limits struct {
	apis []cellplanev1alpha1.ServedAPI // ordered by name
	// byGroup has the positions of the ServedAPIs of a group of users.
	byGroup map[string][]int
	made    sync.Map // positions as text → *Limit
}

// NewLimits returns the limits of some ServedAPIs.
func NewLimits(apis []cellplanev1alpha1.ServedAPI) *Limits {
	l := &Limits{apis: slices.Clone(apis), byGroup: map[string][]int{}}
	slices.SortFunc(l.apis, func(a, b cellplanev1alpha1.ServedAPI) int { return strings.Compare(a.Name, b.Name) })
	for i := range l.apis {
		for _, group := range l.apis[i].Spec.UserGroups {
			l.byGroup[group] = append(l.byGroup[group], i)
		}
	}
	return l
}

// For returns what users who are in all of these groups are served, nil if they are not limited. The result is the same for the same
// ServedAPIs.
func (l *Limits) For(groups []string) *Limit {
	if len(l.byGroup) == 0 {
		return nil
	}
	var chosen []int
	for _, group := range groups {
		chosen = append(chosen, l.byGroup[group]...)
	}
	if len(chosen) == 0 {
		return nil
	}
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	key := fmt.Sprint(chosen)
	if made, found := l.made.Load(key); found {
		return made.(*Limit)
	}
	limit := &Limit{}
	for _, at := range chosen {
		limit.rules = append(limit.rules, l.apis[at].Spec.Rules...)
	}
	made, _ := l.made.LoadOrStore(key, limit)
	return made.(*Limit)
}

// Limit is what some users are served.
type Limit struct {
	rules []cellplanev1alpha1.ServedResources
}

// Allows reports whether a verb is served for a resource or subresource.
func (l *Limit) Allows(resource schema.GroupResource, subresource, verb string) bool {
	return slices.ContainsFunc(l.rules, func(rule cellplanev1alpha1.ServedResources) bool {
		return covers(&rule, resource, subresource) && has(rule.Verbs, verb)
	})
}

// Serves reports whether any verb is served for a resource or subresource.
func (l *Limit) Serves(resource schema.GroupResource, subresource string) bool {
	return slices.ContainsFunc(l.rules, func(rule cellplanev1alpha1.ServedResources) bool {
		return covers(&rule, resource, subresource) && len(rule.Verbs) > 0
	})
}

// covers reports whether a rule is about a resource or subresource: `resource`, `resource/subresource`, `*/subresource` or `*`, as in RBAC.
func covers(rule *cellplanev1alpha1.ServedResources, resource schema.GroupResource, subresource string) bool {
	if !has(rule.APIGroups, resource.Group) {
		return false
	}
	for _, entry := range rule.Resources {
		if entry == all {
			return true
		}
		of, sub, _ := strings.Cut(entry, "/")
		if sub == subresource && (of == resource.Resource || of == all && sub != "") {
			return true
		}
	}
	return false
}

func has(list []string, value string) bool {
	return slices.ContainsFunc(list, func(entry string) bool { return entry == value || entry == all })
}
