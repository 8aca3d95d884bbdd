package engine_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/cellplane/cellplane/internal/engine/execution"
)

// Requests to members are counted by kind, cluster and result, with the labels that Karmada has.
func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	before := requests(t, "ConfigMap")
	create(t, policy(ns, "p", []string{"ConfigMap"}, inMembers("member1")), configMap(ns, "counted", map[string]string{"k": "1"}))
	delivered(t, "member1", ns, "counted", "k", "1")
	edit(t, cell, configMapRef(ns, "counted"), func(c *corev1.ConfigMap) { c.Data["k"] = "2" })
	delivered(t, "member1", ns, "counted", "k", "2")
	if err := cell.Delete(t.Context(), configMapRef(ns, "counted")); err != nil {
		t.Fatal(err)
	}
	untilGone(t, "its Work is gone", cell, workRef("member1", "ConfigMap", ns, "counted"))

	after := requests(t, "ConfigMap")
	for _, counter := range []string{
		"create_resource_to_cluster apiversion=v1 kind=ConfigMap member_cluster=member1 recreate=false result=success",
		"update_resource_to_cluster apiversion=v1 kind=ConfigMap member_cluster=member1 operationResult=updated result=success",
		"delete_resource_from_cluster apiversion=v1 kind=ConfigMap member_cluster=member1 result=success",
	} {
		if after[counter] <= before[counter] {
			t.Errorf("%s went from %v to %v; there are %v", counter, before[counter], after[counter], after)
		}
	}
}

// requests returns the counters of requests to members about a kind.
func requests(t *testing.T, kind string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(execution.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			name, of := family.GetName(), ""
			for _, label := range sample.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
				if label.GetName() == "kind" {
					of = label.GetValue()
				}
			}
			if of == kind && sample.GetCounter() != nil {
				all[name] = sample.GetCounter().GetValue()
			}
		}
	}
	return all
}
