package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// P16: what the administrator lists is not propagated.
func TestSkipped(t *testing.T) {
	skip := skipped([]string{"networking.example.com", "apps/v1beta1", "batch/v1/Job,CronJob", "/v1/Secret"})
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
		{"", "v1", "ConfigMap", false},
	} {
		if got := skip(schema.GroupVersionKind{Group: test.group, Version: test.version, Kind: test.kind}); got != test.want {
			t.Errorf("%s/%s %s: skipped %t", test.group, test.version, test.kind, got)
		}
	}
}
