package quotas

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aliases are the resources that quotas can also name without count/.
var aliases = map[schema.GroupResource]bool{
	{Resource: "configmaps"}:             true,
	{Resource: "secrets"}:                true,
	{Resource: "services"}:               true,
	{Resource: "replicationcontrollers"}: true,
	{Resource: "resourcequotas"}:         true,
	{Resource: "persistentvolumeclaims"}: true,
	{Resource: "pods"}:                   true,
}

// namesOf returns the names by which a quota can limit the number of objects of a resource.
func namesOf(of schema.GroupResource) []corev1.ResourceName {
	limits := []corev1.ResourceName{corev1.ResourceName("count/" + of.String())}
	if aliases[of] {
		limits = append(limits, corev1.ResourceName(of.Resource))
	}
	return limits
}

// usage is how much of the resources in a quota is used.
type usage map[corev1.ResourceName]int64

// one returns the usage of one more object of a resource.
func one(of schema.GroupResource) usage {
	u := usage{}
	for _, name := range namesOf(of) {
		u[name] = 1
	}
	return u
}

// grown adds what one usage is above another.
func (u usage) grown(after, before usage) {
	for name, n := range after {
		if more := n - before[name]; more > 0 {
			u[name] += more
		}
	}
}

// limits reports whether a quota limits any of some resources. Scopes select pods by what they request, which is not counted here.
func limits(quota *corev1.ResourceQuota, some func(corev1.ResourceName) bool) bool {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		return false
	}
	for name := range quota.Spec.Hard {
		if some(name) {
			return true
		}
	}
	return false
}

// anyOf returns a function that reports whether a resource is one of some.
func anyOf(some ...corev1.ResourceName) func(corev1.ResourceName) bool {
	return func(name corev1.ResourceName) bool { return slices.Contains(some, name) }
}

// uncounted returns the names in a quota that are not enforced, sorted.
func uncounted(quota *corev1.ResourceQuota) []string {
	var all []string
	for name := range quota.Spec.Hard {
		counted := strings.HasPrefix(string(name), "count/") || aliases[schema.GroupResource{Resource: string(name)}] || isMeasured(name)
		if !counted || len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			all = append(all, string(name))
		}
	}
	slices.Sort(all)
	return all
}

// charge returns a quota with more used, or why it does not allow that. It returns nil if it limits nothing of it.
func charge(quota *corev1.ResourceQuota, requested usage) (*corev1.ResourceQuota, error) {
	var charged *corev1.ResourceQuota
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		if !limits(quota, anyOf(name)) {
			continue
		}
		used, known := quota.Status.Used[name]
		if _, current := quota.Status.Hard[name]; !known || !current {
			return nil, fmt.Errorf("status unknown for quota: %s, resources: %s", quota.Name, name)
		}
		hard, next, more := quota.Spec.Hard[name], used.DeepCopy(), quantity(name, requested[name])
		next.Add(more)
		if next.Cmp(hard) > 0 {
			return nil, fmt.Errorf("exceeded quota: %s, requested: %s=%s, used: %s=%s, limited: %s=%s", quota.Name, name, more.String(), name, used.String(), name, hard.String())
		}
		if charged == nil {
			charged = quota.DeepCopy()
		}
		charged.Status.Used[name] = next
	}
	return charged, nil
}
