package doors

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestUnclassified checks that what nobody has classified is an error with its name.
func TestUnclassified(t *testing.T) {
	all := metav1.Verbs{"create", "delete", "get", "list", "patch", "update"}
	for what, test := range map[string]struct {
		group    string
		resource metav1.APIResource
		want     string
	}{
		"a known kind":         {"apps/v1", metav1.APIResource{Name: "deployments", Verbs: all}, ""},
		"a kind of a test":     {"some.example.io/v1", metav1.APIResource{Name: "gears", Verbs: all}, ""},
		"a kind to ask with":   {"new.k8s.io/v1", metav1.APIResource{Name: "questions", Verbs: metav1.Verbs{"create"}}, ""},
		"an unknown kind":      {"new.k8s.io/v1", metav1.APIResource{Name: "gears", Verbs: all}, "gears.new.k8s.io"},
		"an unknown verb":      {"apps/v1", metav1.APIResource{Name: "deployments", Verbs: metav1.Verbs{"explode"}}, "explode of apps/v1/deployments"},
		"an unknown subobject": {"apps/v1", metav1.APIResource{Name: "deployments/collapse", Verbs: metav1.Verbs{"create"}}, "create of apps/v1/deployments/collapse"},
	} {
		client := &fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{GroupVersion: test.group, APIResources: []metav1.APIResource{test.resource}}}}}
		_, err := Discover(client)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, test.want)
		}
	}
}

// TestSeveralGroups checks that a kind in several groups is an error, unless it is known that these are the same objects.
func TestSeveralGroups(t *testing.T) {
	list := func(group, resource, kind string) *metav1.APIResourceList {
		return &metav1.APIResourceList{GroupVersion: group, APIResources: []metav1.APIResource{{Name: resource, Kind: kind, Verbs: metav1.Verbs{"get"}}}}
	}
	for what, test := range map[string]struct {
		lists []*metav1.APIResourceList
		want  string
	}{
		"versions":         {[]*metav1.APIResourceList{list("apps/v1", "gears", "Gear"), list("apps/v2", "gears", "Gear")}, ""},
		"events":           {[]*metav1.APIResourceList{list("v1", "events", "Event"), list("events.k8s.io/v1", "events", "Event")}, ""},
		"other objects":    {[]*metav1.APIResourceList{list("v1", "pods", "Pod"), list("metrics.k8s.io/v1", "pods", "PodMetrics")}, ""},
		"perhaps the same": {[]*metav1.APIResourceList{list("apps/v1", "gears", "Gear"), list("gears.k8s.io/v1", "gears", "Gear")}, `gears, which are in the groups "apps" and "gears.k8s.io"`},
		"of tests":         {[]*metav1.APIResourceList{list("apps/v1", "gears", "Gear"), list("gears.example.io/v1", "gears", "Gear")}, ""},
	} {
		_, err := Discover(&fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: test.lists}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, test.want)
		}
	}
}
