package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestUsage(t *testing.T) {
	divided := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{
		Replicas: 5, ReplicaRequirements: &workv1alpha2.ReplicaRequirements{ResourceRequest: list("cpu", "500m", "memory", "1Gi")},
		Clusters: []workv1alpha2.TargetCluster{{Name: "a", Replicas: 2}, {Name: "b", Replicas: 3}},
	}}
	sets := &workv1alpha2.ResourceBinding{Spec: workv1alpha2.ResourceBindingSpec{
		Components: []workv1alpha2.Component{
			{Name: "head", Replicas: 1, ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: list("cpu", "1")}},
			{Name: "worker", Replicas: 3, ReplicaRequirements: &workv1alpha2.ComponentReplicaRequirements{ResourceRequest: list("cpu", "2")}},
		},
		Clusters: []workv1alpha2.TargetCluster{{Name: "a", Components: []workv1alpha2.TargetComponent{{Name: "head", Replicas: 1}, {Name: "worker", Replicas: 3}}}},
	}}
	for _, test := range []struct {
		name    string
		binding *workv1alpha2.ResourceBinding
		want    corev1.ResourceList
	}{
		{"nothing", nil, nil},
		{"not placed", &workv1alpha2.ResourceBinding{}, nil},
		{"divided", divided, list("cpu", "2500m", "memory", "5Gi", "pods", "5")},
		{"several components", sets, list("cpu", "7", "pods", "4")},
	} {
		if got := usageOf(test.binding); !same(got, test.want) {
			t.Errorf("%s: usage = %v, want %v", test.name, got, test.want)
		}
	}
	if got, want := within(usageOf(divided), list("requests.cpu", "10", "count/pods", "9", "services", "1")), list("requests.cpu", "2500m", "count/pods", "5"); !same(got, want) {
		t.Errorf("usage within the quota = %v, want %v", got, want)
	}
}

func TestExceeded(t *testing.T) {
	overall := list("cpu", "10", "memory", "10Gi")
	for _, test := range []struct {
		name                 string
		total, before, after corev1.ResourceList
		want                 string
	}{
		{"within", list("cpu", "10"), nil, list("cpu", "2"), ""},
		{"exceeded", list("cpu", "11"), nil, list("cpu", "2"), "cpu 11 of 10"},
		{"exceeded, but reduced", list("cpu", "11"), list("cpu", "3"), list("cpu", "2"), ""},
		{"exceeded in a resource that does not grow", list("cpu", "11", "memory", "5Gi"), list("cpu", "2"), list("cpu", "2", "memory", "1Gi"), ""},
	} {
		if got := exceeded(overall, test.total, test.before, test.after); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRecord sums up the usage of cells, replaces a broken record, and does not write the same usage twice.
func TestRecord(t *testing.T) {
	quota := &policyv1alpha1.FederatedResourceQuota{}
	quota.Annotations = map[string]string{names.QuotaUsedAnnotation: "{"}
	for _, cell := range []string{"a", "b"} {
		if changed, err := set(quota, cell, list("cpu", "2")); err != nil || !changed {
			t.Fatalf("the usage was not set: %v", err)
		}
	}
	if changed, _ := set(quota, "b", list("cpu", "2000m", "memory", "0")); changed {
		t.Error("unchanged usage was set again")
	}
	if got := recordOf(quota).total("a"); !same(got, list("cpu", "2")) {
		t.Errorf("total of the other cells = %v", got)
	}
	if got := recordOf(quota).total(""); !same(got, list("cpu", "4")) {
		t.Errorf("total = %v", got)
	}
}
