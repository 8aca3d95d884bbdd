package simulate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resources reads pairs of names and quantities.
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestQuotas counts the replicas that fit into a cluster for ten, in a namespace with a quota.
func TestQuotas(t *testing.T) {
	plain := resources("cpu", "1", "memory", "1Gi", "example.com/gpu", "1")
	selector := func(operator corev1.ScopeSelectorOperator, values ...string) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{Hard: resources("pods", "3"), ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: values},
		}}}
	}
	scoped := func(scopes ...corev1.ResourceQuotaScope) corev1.ResourceQuotaSpec {
		return corev1.ResourceQuotaSpec{Hard: resources("pods", "3"), Scopes: scopes}
	}
	for name, test := range map[string]struct {
		spec     corev1.ResourceQuotaSpec
		used     corev1.ResourceList
		requests corev1.ResourceList // plain if nil
		class    string
		want     int64
	}{
		"pods":                            {spec: corev1.ResourceQuotaSpec{Hard: resources("pods", "3")}, want: 3},
		"pods by count":                   {spec: corev1.ResourceQuotaSpec{Hard: resources("count/pods", "3")}, want: 3},
		"some used":                       {spec: corev1.ResourceQuotaSpec{Hard: resources("pods", "3")}, used: resources("pods", "2"), want: 1},
		"more used than allowed":          {spec: corev1.ResourceQuotaSpec{Hard: resources("pods", "3")}, used: resources("pods", "5"), want: 0},
		"processors":                      {spec: corev1.ResourceQuotaSpec{Hard: resources("requests.cpu", "2500m")}, want: 2},
		"processors without prefix":       {spec: corev1.ResourceQuotaSpec{Hard: resources("cpu", "2500m")}, want: 2},
		"the stricter of two names":       {spec: corev1.ResourceQuotaSpec{Hard: resources("cpu", "9", "requests.cpu", "4")}, want: 4},
		"memory":                          {spec: corev1.ResourceQuotaSpec{Hard: resources("requests.memory", "5Gi")}, want: 5},
		"devices":                         {spec: corev1.ResourceQuotaSpec{Hard: resources("requests.example.com/gpu", "1")}, want: 1},
		"what pods do not request":        {spec: corev1.ResourceQuotaSpec{Hard: resources("requests.ephemeral-storage", "0")}, want: 10},
		"limits":                          {spec: corev1.ResourceQuotaSpec{Hard: resources("limits.cpu", "1")}, want: 10},
		"volumes":                         {spec: corev1.ResourceQuotaSpec{Hard: resources("requests.storage", "1", "count/configmaps", "0")}, want: 10},
		"a priority class":                {spec: selector(corev1.ScopeSelectorOpIn, "high"), class: "high", want: 3},
		"another priority class":          {spec: selector(corev1.ScopeSelectorOpIn, "high"), class: "low", want: 10},
		"not a priority class":            {spec: selector(corev1.ScopeSelectorOpNotIn, "high"), class: "high", want: 10},
		"any priority class":              {spec: selector(corev1.ScopeSelectorOpExists), class: "high", want: 3},
		"any priority class, without one": {spec: selector(corev1.ScopeSelectorOpExists), want: 10},
		"no priority class":               {spec: selector(corev1.ScopeSelectorOpDoesNotExist), want: 3},
		"best effort":                     {spec: scoped(corev1.ResourceQuotaScopeBestEffort), want: 10},
		"best effort, without requests":   {spec: scoped(corev1.ResourceQuotaScopeBestEffort), requests: resources(), want: 3},
		"not best effort":                 {spec: scoped(corev1.ResourceQuotaScopeNotBestEffort), want: 3},
		"no deadline":                     {spec: scoped(corev1.ResourceQuotaScopeNotTerminating), want: 3},
		"a deadline":                      {spec: scoped(corev1.ResourceQuotaScopeTerminating), want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			requests := test.requests
			if requests == nil {
				requests = plain
			}
			pod := func(namespace string) *Pod {
				p, err := FromTemplate(namespace, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					PriorityClassName: test.class, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}},
				}})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			m := NewModel()
			m.AddNodes(Class{Name: "all", Allocatable: resources("cpu", "10", "memory", "10Gi", "example.com/gpu", "10", "pods", "10")}, resources("cpu", "10", "memory", "10Gi", "example.com/gpu", "10", "pods", "10"), 1)
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "quota"}, Spec: test.spec, Status: corev1.ResourceQuotaStatus{Used: test.used}}
			m.SetQuota(quota)
			m.SetQuota(quota) // replaces the first
			check := func(what string, m *Model, p *Pod, want int64) {
				t.Helper()
				fit := m.Fit(p)
				inClasses := int64(0)
				for _, c := range fit.Classes {
					inClasses += c.Replicas
				}
				if fit.Total() != want || inClasses != want {
					t.Errorf("%s: %d fit, %d in classes; want %d", what, fit.Total(), inClasses, want)
				}
			}
			check("the quota", m, pod("ns"), test.want)
			check("another namespace", m, pod("other"), 10)

			// A summary says the same, and what is used from a clone does not change the model.
			summarized := NewModel()
			for _, c := range m.Summarize(10) {
				summarized.AddNodes(Class{Name: c.Name, Allocatable: c.Allocatable}, c.Nodes[0].Free, int(c.Nodes[0].Count))
			}
			for _, q := range m.SummarizeQuotas() {
				summarized.AddQuota(q)
			}
			check("a summary", summarized, pod("ns"), test.want)
			clone := summarized.Clone()
			clone.UseQuotaOf(pod("ns"), 1)
			if test.want < 10 {
				check("after one was used", clone, pod("ns"), max(0, test.want-1))
			}
			clone.UseQuotaOf(pod("ns"), -1)
			check("after it was given back", clone, pod("ns"), test.want)
			check("the model of the clone", summarized, pod("ns"), test.want)

			m.KeepQuotas(map[string]bool{"ns/quota": true})
			check("after a list with the quota", m, pod("ns"), test.want)
			m.RemoveQuota("ns/quota")
			check("without the quota", m, pod("ns"), 10)
		})
	}
}

// TestManyQuotas leaves those out of a summary of which the most is left.
func TestManyQuotas(t *testing.T) {
	m := NewModel()
	for i := range maxQuotas + 10 {
		m.SetQuota(&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%04d", i), Name: "quota"},
			Spec:       corev1.ResourceQuotaSpec{Hard: resources("pods", "1000")}, Status: corev1.ResourceQuotaStatus{Used: resources("pods", fmt.Sprint(i))},
		})
	}
	summary := m.SummarizeQuotas()
	if len(summary) != maxQuotas || summary[0].Namespace != "ns-0010" {
		t.Errorf("%d quotas from %s on, want %d from ns-0010 on", len(summary), summary[0].Namespace, maxQuotas)
	}
	m.KeepQuotas(nil)
	if left := m.SummarizeQuotas(); len(left) != 0 {
		t.Errorf("%d are left after a list without any", len(left))
	}
}

// TestSharedQuotas gives each of three a part.
func TestSharedQuotas(t *testing.T) {
	m := NewModel()
	m.AddQuota(Quota{Namespace: "ns", Left: resources("pods", "10")})
	share := m.Clone()
	share.Share(1, 3)
	for want, m := range map[int64]*Model{10: m, 3: share} {
		if left := m.SummarizeQuotas()[0].Left[corev1.ResourcePods]; left.Value() != want {
			t.Errorf("%s are left, want %d", left.String(), want)
		}
	}
}
