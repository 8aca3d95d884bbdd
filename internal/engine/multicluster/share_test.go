package multicluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	multiclusterv1alpha1 "github.com/cellplane/cellplane/api/multicluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/endpointslices"
	"github.com/cellplane/cellplane/internal/engine/exposure"
)

var web = cell.Key{Namespace: "shop", Name: "web"}

// fromMembers has one EndpointSlice in a and b, one without endpoints in c; nothing is known about d.
func fromMembers(cluster string, service cell.Key) ([]*endpointslices.Slice, bool) {
	switch cluster {
	case "a", "b":
		return []*endpointslices.Slice{{
			Name: "web-1", Service: service, Headless: cluster == "b",
			Content: `{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"http","port":80},{"name":"debug","port":81}]}`,
		}}, true
	case "c":
		return []*endpointslices.Slice{{Name: "web-1", Service: service, Content: `{"addressType":"IPv4","endpoints":[],"ports":[]}`}}, true
	default:
		return nil, false
	}
}

func TestManifests(t *testing.T) {
	cross := func(m exposure.CrossCluster, placed ...string) *share {
		m.Template = &cell.Template{UID: "uid"}
		return crossCluster(&m, web, placed)
	}
	importing, err := imported(&exposure.Imported{
		Template: &cell.Template{UID: "uid"}, Providers: []string{"a"}, Consumers: []string{"a", "b"},
		Import: &multiclusterv1alpha1.ServiceImport{Spec: multiclusterv1alpha1.ServiceImportSpec{Type: multiclusterv1alpha1.Headless, Ports: []multiclusterv1alpha1.ServicePort{{Name: "http", Port: 80}}}},
	}, web)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		share *share
		want  []string
	}{
		"all clusters offer and use it": {cross(exposure.CrossCluster{}, "a", "b", "c"), []string{
			"b: a-web-1 of web with 2 ports from a", "c: a-web-1 of web with 2 ports from a", "a: b-web-1 of web with 2 ports from b, headless", "c: b-web-1 of web with 2 ports from b, headless",
		}},
		"named clusters":                     {cross(exposure.CrossCluster{Providers: []string{"a"}, Consumers: []string{"c"}}, "a", "b", "c"), []string{"c: a-web-1 of web with 2 ports from a"}},
		"a cluster that is not chosen":       {cross(exposure.CrossCluster{Providers: []string{"a"}, Consumers: []string{"b", "c"}}, "a", "b"), []string{"b: a-web-1 of web with 2 ports from a"}},
		"a cluster that offers no endpoints": {cross(exposure.CrossCluster{Providers: []string{"c"}}, "a", "c"), nil},
		"one port":                           {cross(exposure.CrossCluster{Providers: []string{"a"}, Ports: []string{"http"}}, "a", "b"), []string{"b: a-web-1 of web with 1 ports from a"}},
		"no such port":                       {cross(exposure.CrossCluster{Providers: []string{"a"}, Ports: []string{"grpc"}}, "a", "b"), nil},
		"an unknown cluster":                 {cross(exposure.CrossCluster{Providers: []string{"a", "d"}, Consumers: []string{"b"}}, "a", "b", "d"), []string{"b: a-web-1 of web with 2 ports from a", "not known: d"}},
		"an import": {importing, []string{
			"a: Service derived-web None", "b: Service derived-web None",
			"a: imported-a-web-1 of derived-web with 2 ports from a", "b: imported-a-web-1 of derived-web with 2 ports from a",
		}},
	} {
		wanted, unknown, err := test.share.manifests(fromMembers)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for i := range wanted {
			got = append(got, describe(&wanted[i]))
		}
		for _, cluster := range unknown {
			got = append(got, "not known: "+cluster)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func describe(m *manifest) string {
	if m.object.GetKind() == "Service" {
		return fmt.Sprintf("%s: Service %s %v", m.cluster, m.object.GetName(), m.object.Object["spec"].(map[string]any)["clusterIP"])
	}
	text := fmt.Sprintf("%s: %s of %s with %d ports from %s", m.cluster, m.object.GetName(), m.object.GetLabels()["kubernetes.io/service-name"],
		len(m.object.Object["ports"].([]any)), m.object.GetAnnotations()[names.ProvisionClusterAnnotation])
	if _, headless := m.object.GetLabels()["service.kubernetes.io/headless"]; headless {
		text += ", headless"
	}
	return text
}

// TestWorkIDStays: the engine of another cell finds the same ID, so that it takes over the object in the member.
func TestWorkIDStays(t *testing.T) {
	key := cell.Key{Namespace: "karmada-es-b", Name: "a-web-1-123"}
	const id = "acf11258-07a3-5abd-bdb2-a46b69692d08"
	if got := workID(&share{owner: "uid"}, key); got != id {
		t.Errorf("the ID is %s, not %s", got, id)
	}
	if workID(&share{owner: "other"}, key) == id {
		t.Error("a recreated MultiClusterService has the ID of the former one")
	}
	if _, _, err := (&share{providers: []string{"a"}, sliceName: names.DispatchedEndpointSliceName}).manifests(func(string, cell.Key) ([]*endpointslices.Slice, bool) {
		return []*endpointslices.Slice{{Name: "broken", Content: "{"}}, true
	}); err == nil || !strings.Contains(err.Error(), "broken of cluster a") {
		t.Errorf("an unreadable EndpointSlice: %v", err)
	}
}
