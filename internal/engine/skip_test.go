package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// P16: kinds that the administrator lists are not propagated.
func TestSkipped(t *testing.T) {
	for name, apis := range map[string][]string{
		"one by one":         {"networking.example.com", "apps/v1beta1", "batch/v1/Job,CronJob", "/v1/Secret", "v1/Node,Pod"},
		"as Karmada has it":  {"networking.example.com;apps/v1beta1;batch/v1/Job,CronJob;v1/Secret,Node,Pod"},
		"split at commas":    {"networking.example.com;apps/v1beta1;batch/v1/Job", "CronJob;v1/Secret", "Node", "Pod"},
		"separated by comma": {"networking.example.com,apps/v1beta1,batch/v1/Job,CronJob,v1/Node,Pod, v1/Secret"},
	} {
		t.Run(name, func(t *testing.T) { testSkipped(t, skipped(apis)) })
	}
	if skip := skipped(nil); skip(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}) {
		t.Error("a kind is skipped without a list")
	}
}

func testSkipped(t *testing.T, skip func(schema.GroupVersionKind) bool) {
	for _, test := range []struct {
		group, version, kind string
		want                 bool
	}{
		{"networking.example.com", "v1", "Gate", true},
		{"apps", "v1beta1", "Deployment", true},
		{"apps", "v1", "Deployment", false},
		{"batch", "v1", "Job", true},
		{"batch", "v1", "CronJob", true},
		{"batch", "v2", "Job", false},
		{"", "v1", "Secret", true},
		{"", "v1", "Node", true},
		{"", "v1", "Pod", true},
		{"", "v1", "ConfigMap", false},
		{"apps", "v1", "Pod", false},
	} {
		if got := skip(schema.GroupVersionKind{Group: test.group, Version: test.version, Kind: test.kind}); got != test.want {
			t.Errorf("%s/%s %s: skipped %t", test.group, test.version, test.kind, got)
		}
	}
}
