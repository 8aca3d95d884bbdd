package cli

import (
	"testing"

	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
)

// Nothing can be kept in a cluster that a workload has left.
func TestLeftBy(t *testing.T) {
	at := []workv1alpha2.TargetCluster{{Name: "member1"}}
	for name, test := range map[string]struct {
		spec workv1alpha2.ResourceBindingSpec
		want bool
	}{
		"placed there":        {workv1alpha2.ResourceBindingSpec{Clusters: at}, false},
		"needed there":        {workv1alpha2.ResourceBindingSpec{RequiredBy: []workv1alpha2.BindingSnapshot{{Clusters: at}}}, false},
		"placed elsewhere":    {workv1alpha2.ResourceBindingSpec{Clusters: []workv1alpha2.TargetCluster{{Name: "member2"}}}, true},
		"not placed anywhere": {workv1alpha2.ResourceBindingSpec{}, true},
	} {
		if got := leftBy(&test.spec, "member1"); got != test.want {
			t.Errorf("%s: left is %t", name, got)
		}
	}
}
