package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/scheduler"
)

// usageOf returns the resources that the replicas of a binding request in all its clusters, without requests that were refused. A binding that has moved to another cell counts there. While
// it moves it counts in both, so that the sum is never too small.
func usageOf(binding *workv1alpha2.ResourceBinding) corev1.ResourceList {
	if binding == nil || binding.DeletionTimestamp != nil || binding.Labels[names.RebalanceStatusLabel] == names.RebalanceMigrated {
		return nil
	}
	used := corev1.ResourceList{}
	spec, admitted := &binding.Spec, scheduler.Admitted(binding)
	for i := range spec.Clusters {
		target := &spec.Clusters[i]
		if len(admitted.Components) == 0 {
			if admitted.Replica != nil {
				add(used, admitted.Replica.ResourceRequest, target.Replicas)
			}
			add(used, onePod, target.Replicas)
			continue
		}
		for j := range admitted.Components {
			component := &admitted.Components[j]
			share := slices.IndexFunc(target.Components, func(t workv1alpha2.TargetComponent) bool { return t.Name == component.Name })
			if share < 0 {
				continue
			}
			if component.ReplicaRequirements != nil {
				add(used, component.ReplicaRequirements.ResourceRequest, target.Components[share].Replicas)
			}
			add(used, onePod, target.Components[share].Replicas)
		}
	}
	return used
}

var onePod = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}

// add adds a list several times.
func add(sum, what corev1.ResourceList, times int32) {
	for name, quantity := range what {
		if name == corev1.ResourcePods && len(what) > 1 {
			continue // pods are counted separately
		}
		more := quantity.DeepCopy()
		more.Mul(int64(times))
		total := sum[name]
		total.Add(more)
		sum[name] = total
	}
}

// within returns the part of the usage that a quota limits, under the names that the quota uses.
func within(used, overall corev1.ResourceList) corev1.ResourceList {
	counted := corev1.ResourceList{}
	for name := range overall {
		if quantity, uses := used[podName(name)]; uses {
			counted[name] = quantity
		}
	}
	return counted
}

// podName returns the resource name of pods for a name in a quota, such as cpu for requests.cpu.
func podName(name corev1.ResourceName) corev1.ResourceName {
	if name == "count/pods" {
		return corev1.ResourcePods
	}
	return corev1.ResourceName(strings.TrimPrefix(string(name), "requests."))
}

// exceeded describes the resources that grow beyond the quota, in Karmada's words; empty if there are none.
func exceeded(quota string, overall, total, before, after corev1.ResourceList) string {
	var parts []string
	for name, bound := range overall {
		grows, was := after[name], before[name]
		if grows.Cmp(was) <= 0 {
			continue
		}
		if sum := total[name]; sum.Cmp(bound) > 0 {
			parts = append(parts, fmt.Sprintf("FederatedResourceQuota(%s) exceeded for resource %s: requested sum %s, limit %s.", quota, name, sum.String(), bound.String()))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// record is the usage of a quota by cell.
type record map[string]corev1.ResourceList

// recordOf reads the record on a quota. An unreadable record counts as empty: each cell writes its part again.
func recordOf(quota *policyv1alpha1.FederatedResourceQuota) record {
	r := record{}
	if text := quota.Annotations[names.QuotaUsedAnnotation]; text != "" && json.Unmarshal([]byte(text), &r) != nil {
		return record{}
	}
	return r
}

// total sums up the usage of all cells except one.
func (r record) total(except string) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for cell, used := range r {
		if cell != except {
			for name, quantity := range used {
				total := sum[name]
				total.Add(quantity)
				sum[name] = total
			}
		}
	}
	return sum
}

// set updates the usage of a cell on a quota and reports whether it changed.
func set(quota *policyv1alpha1.FederatedResourceQuota, cell string, used corev1.ResourceList) (bool, error) {
	r := recordOf(quota)
	if same(r[cell], used) {
		return false, nil
	}
	r[cell] = used
	text, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	if quota.Annotations == nil {
		quota.Annotations = map[string]string{}
	}
	quota.Annotations[names.QuotaUsedAnnotation] = string(text)
	return true, nil
}

// same compares amounts. A missing amount equals zero.
func same(a, b corev1.ResourceList) bool {
	covers := func(x, y corev1.ResourceList) bool {
		for name, quantity := range x {
			if other := y[name]; quantity.Cmp(other) != 0 {
				return false
			}
		}
		return true
	}
	return covers(a, b) && covers(b, a)
}
