package quotas

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
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

// parts are what quotas limit of Services besides their number.
var parts = []corev1.ResourceName{corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}

// namesOf returns the names by which a quota can limit the number of objects of a resource.
func namesOf(of schema.GroupResource) []corev1.ResourceName {
	limits := []corev1.ResourceName{corev1.ResourceName("count/" + of.String())}
	if aliases[of] {
		limits = append(limits, corev1.ResourceName(of.Resource))
	}
	return limits
}

// services is the resource whose objects quotas also limit by what they use.
var services = schema.GroupResource{Resource: "services"}

// partsOf returns how many node ports and load balancers a Service uses, as the quota controller counts them.
func partsOf(service *corev1.Service) usage {
	ports := int64(len(service.Spec.Ports))
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return usage{corev1.ResourceServicesNodePorts: ports}
	case corev1.ServiceTypeLoadBalancer:
		if !ptr.Deref(service.Spec.AllocateLoadBalancerNodePorts, true) {
			ports = 0 // only those that the Service names
			for _, port := range service.Spec.Ports {
				if port.NodePort != 0 {
					ports++
				}
			}
		}
		return usage{corev1.ResourceServicesNodePorts: ports, corev1.ResourceServicesLoadBalancers: 1}
	default:
		return nil
	}
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
func limits(quota *corev1.ResourceQuota, some ...corev1.ResourceName) bool {
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		return false
	}
	return slices.ContainsFunc(some, func(name corev1.ResourceName) bool {
		_, found := quota.Spec.Hard[name]
		return found
	})
}

// uncounted returns the names in a quota that are not enforced, sorted.
func uncounted(quota *corev1.ResourceQuota) []string {
	var all []string
	for name := range quota.Spec.Hard {
		counted := strings.HasPrefix(string(name), "count/") || aliases[schema.GroupResource{Resource: string(name)}] || slices.Contains(parts, name)
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
		if !limits(quota, name) {
			continue
		}
		used, known := quota.Status.Used[name]
		if _, current := quota.Status.Hard[name]; !known || !current {
			return nil, fmt.Errorf("status unknown for quota: %s, resources: %s", quota.Name, name)
		}
		hard, next := quota.Spec.Hard[name], used.DeepCopy()
		next.Add(*resource.NewQuantity(requested[name], resource.DecimalSI))
		if next.Cmp(hard) > 0 {
			return nil, fmt.Errorf("exceeded quota: %s, requested: %s=%d, used: %s=%s, limited: %s=%s", quota.Name, name, requested[name], name, used.String(), name, hard.String())
		}
		if charged == nil {
			charged = quota.DeepCopy()
		}
		charged.Status.Used[name] = next
	}
	return charged, nil
}
