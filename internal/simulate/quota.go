package simulate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Quota is what a ResourceQuota leaves to the pods of a namespace. It is part of a summary.
type Quota struct {
	Namespace string
	// Scopes select the pods that the quota counts; all if there are none.
	Scopes []corev1.ScopedResourceSelectorRequirement
	// Left is what more pods may request. It is negative if more is used than allowed. Resources that are not limited are missing.
	Left corev1.ResourceList
}

// quota is a Quota in a model.
type quota struct {
	name   string
	scopes []corev1.ScopedResourceSelectorRequirement
	left   map[corev1.ResourceName]int64 // immutable
	// spare is the smallest part that is left of a resource.
	spare float64
}

// SetQuota adds or updates a ResourceQuota.
func (m *Model) SetQuota(q *corev1.ResourceQuota) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeQuota(q.Namespace, q.Name)
	m.version++
	scopes, counts := scopesOf(&q.Spec)
	if !counts {
		return
	}
	one := quota{name: q.Name, scopes: scopes, left: map[corev1.ResourceName]int64{}, spare: math.Inf(1)}
	for name, hard := range q.Spec.Hard {
		of, limits := limitedBy(name)
		if !limits {
			continue
		}
		used := q.Status.Used[name]
		most, left := amountOf(of, &hard), amountOf(of, &hard)-amountOf(of, &used)
		if other, has := one.left[of]; has {
			left = min(left, other)
		}
		one.left[of] = left
		one.spare = min(one.spare, float64(left)/float64(max(1, most)))
	}
	if len(one.left) > 0 {
		m.ownQuotas()
		m.quotas[q.Namespace] = append(slices.Clip(m.quotas[q.Namespace]), one)
	}
}

// RemoveQuota removes a ResourceQuota, named as namespace/name.
func (m *Model) RemoveQuota(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	namespace, name, _ := strings.Cut(key, "/")
	m.removeQuota(namespace, name)
	m.version++
}

// KeepQuotas removes all other ResourceQuotas.
func (m *Model) KeepQuotas(kept map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for namespace, all := range maps.Clone(m.quotas) {
		for i := range all {
			if !kept[namespace+"/"+all[i].name] {
				m.removeQuota(namespace, all[i].name)
			}
		}
	}
	m.version++
}

func (m *Model) removeQuota(namespace, name string) {
	all := m.quotas[namespace]
	at := slices.IndexFunc(all, func(q quota) bool { return q.name == name })
	if at < 0 {
		return
	}
	m.ownQuotas()
	if m.quotas[namespace] = slices.Delete(slices.Clone(all), at, at+1); len(all) == 1 {
		delete(m.quotas, namespace)
	}
}

// AddQuota adds a quota from a summary.
func (m *Model) AddQuota(q Quota) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ownQuotas()
	one := quota{scopes: q.Scopes, left: make(map[corev1.ResourceName]int64, len(q.Left))}
	for name, left := range q.Left {
		one.left[name] = amountOf(name, &left)
	}
	m.quotas[q.Namespace] = append(slices.Clip(m.quotas[q.Namespace]), one)
	m.version++
}

// UseQuota counts pods in the quotas of their namespace. A negative count takes them out again.
func (m *Model) UseQuota(namespace, priorityClass string, requests corev1.ResourceList, count int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.quotas[namespace]) == 0 || count == 0 {
		return
	}
	m.ownQuotas()
	wanted := amountsOf(requests).plusPod()
	charged := slices.Clone(m.quotas[namespace])
	for i := range charged {
		if !charged[i].counts(priorityClass, &wanted) {
			continue
		}
		left := maps.Clone(charged[i].left)
		for name := range left {
			left[name] -= count * wanted.get(name)
		}
		charged[i].left = left
	}
	m.quotas[namespace] = charged
	m.version++
}

// UseQuotaOf counts replicas of a pod in the quotas of their namespace.
func (m *Model) UseQuotaOf(p *Pod, count int64) {
	m.UseQuota(p.namespace, p.priorityClass, p.Requests, count)
}

// PriorityClass returns the name of the pod's priority class.
func (p *Pod) PriorityClass() string { return p.priorityClass }

// ownQuotas makes the map of quotas the model's own; a clone shares it.
func (m *Model) ownQuotas() {
	if m.quotasShared || m.quotas == nil {
		m.quotas, m.quotasShared = maps.Clone(m.quotas), false
	}
	if m.quotas == nil {
		m.quotas = map[string][]quota{}
	}
}

// maxQuotas bounds the quotas in a summary. Others, of which the most is left, do not count.
const maxQuotas = 512

// SummarizeQuotas returns the quotas that limit pods, sorted by namespace.
func (m *Model) SummarizeQuotas() []Quota {
	m.mu.RLock()
	defer m.mu.RUnlock()
	type named struct {
		namespace string
		*quota
	}
	var all []named
	for namespace, some := range m.quotas {
		for i := range some {
			all = append(all, named{namespace, &some[i]})
		}
	}
	byName := func(a, b named) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	}
	if len(all) > maxQuotas {
		slices.SortFunc(all, func(a, b named) int { return cmp.Or(cmp.Compare(a.spare, b.spare), byName(a, b)) })
		all = all[:maxQuotas]
	}
	slices.SortStableFunc(all, byName)
	var summary []Quota
	for _, q := range all {
		left := make(corev1.ResourceList, len(q.left))
		for name, value := range q.left {
			left[name] = quantityOf(name, value)
		}
		summary = append(summary, Quota{Namespace: q.namespace, Scopes: q.scopes, Left: left})
	}
	return summary
}

// quotaFor returns how many replicas of a pod the quotas of its namespace allow.
func (m *Model) quotaFor(p *Pod) int64 {
	most := int64(math.MaxInt64)
	for i := range m.quotas[p.namespace] {
		q := &m.quotas[p.namespace][i]
		if !q.counts(p.priorityClass, &p.requests) {
			continue
		}
		for name, left := range q.left {
			if asked := p.requests.get(name); asked > 0 {
				most = min(most, max(0, left)/asked)
			}
		}
	}
	return most
}

// shareQuotas leaves one of several equal shares.
func (m *Model) shareQuotas(n int) {
	shared := make(map[string][]quota, len(m.quotas))
	for namespace, all := range m.quotas {
		all = slices.Clone(all)
		for i := range all {
			left := maps.Clone(all[i].left)
			for name := range left {
				left[name] /= int64(n)
			}
			all[i].left = left
		}
		shared[namespace] = all
	}
	m.quotas, m.quotasShared = shared, false
}

// counts reports whether a quota counts pods with these properties.
func (q *quota) counts(priorityClass string, requests *amounts) bool {
	for i := range q.scopes {
		s := &q.scopes[i]
		bestEffort := requests.fixed[cpu] == 0 && requests.fixed[memory] == 0
		switch s.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort:
			if !bestEffort {
				return false
			}
		case corev1.ResourceQuotaScopeNotBestEffort:
			if bestEffort {
				return false
			}
		case corev1.ResourceQuotaScopePriorityClass:
			if !selects(s, priorityClass) {
				return false
			}
		}
	}
	return true
}

func selects(s *corev1.ScopedResourceSelectorRequirement, value string) bool {
	switch s.Operator {
	case corev1.ScopeSelectorOpIn:
		return slices.Contains(s.Values, value)
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(s.Values, value)
	case corev1.ScopeSelectorOpDoesNotExist:
		return value == ""
	default:
		return value != ""
	}
}

// scopesOf returns the scopes of a quota. It is false for one that counts only pods with a deadline, or pods that this package does not
// tell from others.
func scopesOf(spec *corev1.ResourceQuotaSpec) ([]corev1.ScopedResourceSelectorRequirement, bool) {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, scope := range spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if spec.ScopeSelector != nil {
		all = append(all, spec.ScopeSelector.MatchExpressions...)
	}
	known := true
	all = slices.DeleteFunc(all, func(s corev1.ScopedResourceSelectorRequirement) bool {
		switch s.ScopeName {
		case corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass:
			return false
		case corev1.ResourceQuotaScopeNotTerminating: // workloads of a federation have no deadline
			return true
		default:
			known = false
			return true
		}
	})
	return all, known
}

// limitedBy returns the resource whose requests a name in a quota limits. It is false for names that limit something else.
func limitedBy(name corev1.ResourceName) (corev1.ResourceName, bool) {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return name, true
	case "count/pods":
		return corev1.ResourcePods, true
	case corev1.ResourceRequestsStorage: // of volumes
		return "", false
	}
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return name, true
	}
	of, requests := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return corev1.ResourceName(of), requests
}

func amountOf(name corev1.ResourceName, quantity *resource.Quantity) int64 {
	return units(placeOf(name), quantity)
}

func quantityOf(name corev1.ResourceName, value int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return *resource.NewQuantity(value, resource.BinarySI)
	default:
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
}

// get returns the amount of a resource.
func (a *amounts) get(name corev1.ResourceName) int64 {
	if place := placeOf(name); place >= 0 {
		return a.fixed[place]
	}
	return a.other[name]
}

// limit reduces a fit to a number of replicas, those on nodes that do not exist yet first.
func (f Fit) limit(most int64) Fit {
	if f.Total() <= most {
		return f
	}
	var limited Fit
	for _, potential := range []bool{false, true} {
		for _, c := range f.Classes {
			if c.Potential == potential {
				c.Replicas = min(c.Replicas, most)
				most -= c.Replicas
				limited.add(c)
			}
		}
	}
	return limited
}
