package registry_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
	"github.com/cellplane/cellplane/internal/clustergateway/registry"
)

// registryOf returns a registry of kinds, written as apiVersion:kind:namespace, in some clusters; none means all.
func registryOf(name string, clusters []string, kinds ...string) *searchv1alpha1.ResourceRegistry {
	r := &searchv1alpha1.ResourceRegistry{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.TargetCluster = policyv1alpha1.ClusterAffinity{ClusterNames: clusters}
	for _, kind := range kinds {
		parts := strings.Split(kind, ":")
		r.Spec.ResourceSelectors = append(r.Spec.ResourceSelectors, searchv1alpha1.ResourceSelector{APIVersion: parts[0], Kind: parts[1], Namespace: parts[2]})
	}
	return r
}

func clusterNamed(name string) *clusterv1alpha1.Cluster {
	return &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestChoices(t *testing.T) {
	gone := registryOf("gone", nil, "v1:Secret:")
	gone.DeletionTimestamp = &metav1.Time{}
	invalid := registryOf("invalid", nil, "a/b/c:Odd:")
	for name, test := range map[string]struct {
		registries []*searchv1alpha1.ResourceRegistry
		want       string // in m1
	}{
		"nothing":                          {nil, ""},
		"two kinds":                        {[]*searchv1alpha1.ResourceRegistry{registryOf("a", nil, "v1:Pod:", "apps/v1:Deployment:")}, "Pod all, Deployment all"},
		"another cluster":                  {[]*searchv1alpha1.ResourceRegistry{registryOf("a", []string{"m2"}, "v1:Pod:")}, ""},
		"namespaces add up":                {[]*searchv1alpha1.ResourceRegistry{registryOf("a", nil, "v1:Pod:y"), registryOf("b", []string{"m1"}, "v1:Pod:x", "v1:Pod:y")}, "Pod [x y]"},
		"all namespaces include one":       {[]*searchv1alpha1.ResourceRegistry{registryOf("a", nil, "v1:Pod:x"), registryOf("b", nil, "v1:Pod:"), registryOf("c", nil, "v1:Pod:y")}, "Pod all"},
		"one that is deleted":              {[]*searchv1alpha1.ResourceRegistry{gone}, ""},
		"one that is invalid, and another": {[]*searchv1alpha1.ResourceRegistry{invalid, registryOf("z", nil, "v1:Pod:")}, "Pod all"},
	} {
		var got []string
		for _, choice := range registry.Select(test.registries).Choices(clusterNamed("m1")) {
			namespaces := "all"
			if choice.Namespaces != nil {
				namespaces = fmt.Sprint(choice.Namespaces)
			}
			got = append(got, choice.Kind.Kind+" "+namespaces)
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

func TestConditions(t *testing.T) {
	pods, widgets := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Widget"}
	clusters := []*clusterv1alpha1.Cluster{clusterNamed("m1"), clusterNamed("m2")}
	both := registryOf("r", nil, "v1:Pod:", "example.io/v1:Widget:")
	for name, test := range map[string]struct {
		of       *searchv1alpha1.ResourceRegistry
		progress []ingest.Progress
		want     string
	}{
		"cached":         {both, []ingest.Progress{{Cluster: "m1", Kind: pods, State: ingest.Followed}}, "True Cached cached from 2 clusters"},
		"reading":        {both, []ingest.Progress{{Cluster: "m1", Kind: pods, State: ingest.Reading}}, "False Reading Pod of v1 in cluster m1 is being read"},
		"not served":     {both, []ingest.Progress{{Cluster: "m2", Kind: widgets, State: ingest.NotServed}, {Cluster: "m1", Kind: pods, State: ingest.Reading}}, "False NotServed Pod of v1 in cluster m1 is being read; Widget of example.io/v1 in cluster m2 is not served"},
		"of others":      {registryOf("r", []string{"m1"}, "v1:Pod:"), []ingest.Progress{{Cluster: "m2", Kind: pods, State: ingest.Denied}, {Cluster: "m1", Kind: widgets, State: ingest.Denied}}, "True Cached cached from 1 clusters"},
		"no clusters":    {registryOf("r", []string{"m3"}, "v1:Pod:"), nil, "False NoClusters spec.targetCluster selects no cluster"},
		"an odd version": {registryOf("r", nil, "a/b/c:Pod:"), nil, "False Invalid spec.resourceSelectors[0]: unexpected GroupVersion string: a/b/c"},
	} {
		got := registry.Select([]*searchv1alpha1.ResourceRegistry{test.of}).Conditions("Cached", clusters, test.progress)["r"]
		if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); text != test.want || got.Type != "Cached" {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
	var many []ingest.Progress
	for i := range 9 {
		clusters = append(clusters, clusterNamed(fmt.Sprint("n", i)))
		many = append(many, ingest.Progress{Cluster: fmt.Sprint("n", i), Kind: pods, State: ingest.Unreachable, Message: strings.Repeat("x", 1000)})
	}
	got := registry.Select([]*searchv1alpha1.ResourceRegistry{both}).Conditions("Cached", clusters, many)["r"]
	if len(got.Message) > 5*400 || !strings.HasSuffix(got.Message, "and 4 more") {
		t.Errorf("many problems take %d bytes: %s", len(got.Message), got.Message)
	}
}

// withBackend lets a registry index its objects.
func withBackend(r *searchv1alpha1.ResourceRegistry, namespace string, addresses ...string) *searchv1alpha1.ResourceRegistry {
	r.Spec.BackendStore = &searchv1alpha1.BackendStoreConfig{OpenSearch: &searchv1alpha1.OpenSearchConfig{
		Addresses: addresses, SecretRef: clusterv1alpha1.LocalSecretReference{Namespace: namespace, Name: "opensearch"},
	}}
	return r
}

const engine = "https://search:9200"

func TestPlans(t *testing.T) {
	clusters := []*clusterv1alpha1.Cluster{clusterNamed("m1"), clusterNamed("m2")}
	for name, test := range map[string]struct {
		registries []*searchv1alpha1.ResourceRegistry
		want       string
	}{
		"no backend":            {[]*searchv1alpha1.ResourceRegistry{registryOf("a", nil, "v1:Pod:")}, ""},
		"one":                   {[]*searchv1alpha1.ResourceRegistry{withBackend(registryOf("a", nil, "v1:Pod:"), names.SystemNamespace, engine), registryOf("b", nil, "v1:Node:")}, "Pod map[m1:[] m2:[]]"},
		"what they have add up": {[]*searchv1alpha1.ResourceRegistry{withBackend(registryOf("a", []string{"m1"}, "v1:Pod:y"), names.SystemNamespace, engine), withBackend(registryOf("b", nil, "v1:Pod:x"), names.SystemNamespace, engine)}, "Pod map[m1:[x y] m2:[x]]"},
		"two backends":          {[]*searchv1alpha1.ResourceRegistry{withBackend(registryOf("a", []string{"m1"}, "v1:Pod:"), names.SystemNamespace, engine), withBackend(registryOf("b", []string{"m2"}, "v1:Pod:"), names.SystemNamespace, "https://other")}, "Pod map[m1:[]], Pod map[m2:[]]"},
		"a member's Secret":     {[]*searchv1alpha1.ResourceRegistry{withBackend(registryOf("a", nil, "v1:Pod:"), names.ClusterNamespace, engine)}, ""},
		"a password in the URL": {[]*searchv1alpha1.ResourceRegistry{withBackend(registryOf("a", nil, "v1:Pod:"), names.SystemNamespace, "https://u:p@search")}, ""},
	} {
		var got []string
		for _, plan := range registry.Select(test.registries).Plans(clusters) {
			got = append(got, fmt.Sprint(plan.Kind.Kind, " ", map[string][]string(plan.Scope)))
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

func TestIndexed(t *testing.T) {
	clusters := []*clusterv1alpha1.Cluster{clusterNamed("m1"), clusterNamed("m2")}
	target := index.TargetOf([]string{engine}, types.NamespacedName{Namespace: names.SystemNamespace, Name: "opensearch"})
	pods, nodes := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	for name, test := range map[string]struct {
		of       *searchv1alpha1.ResourceRegistry
		progress []index.Progress
		want     string
	}{
		"no backend": {registryOf("r", nil, "v1:Pod:"), nil, "  "},
		"indexed":    {withBackend(registryOf("r", nil, "v1:Pod:"), names.SystemNamespace, engine), []index.Progress{{Target: target, Kind: pods, State: index.Indexed}}, "True Indexed indexed from 2 clusters"},
		"failing": {withBackend(registryOf("r", nil, "v1:Pod:", "v1:Node:"), names.SystemNamespace, engine),
			[]index.Progress{{Target: target, Kind: pods, State: index.Indexing, Message: "slowly"}, {Target: target, Kind: nodes, State: index.Failing, Message: "no"}}, "False Failing Node of v1: no; Pod of v1: slowly"},
		"of others":         {withBackend(registryOf("r", nil, "v1:Pod:"), names.SystemNamespace, engine), []index.Progress{{Kind: pods, State: index.Failing}, {Target: target, Kind: nodes, State: index.Failing}}, "True Indexed indexed from 2 clusters"},
		"no clusters":       {withBackend(registryOf("r", []string{"m3"}, "v1:Pod:"), names.SystemNamespace, engine), nil, "False NoClusters spec.targetCluster selects no cluster"},
		"a member's Secret": {withBackend(registryOf("r", nil, "v1:Pod:"), names.ClusterNamespace, engine), nil, "False Invalid spec.backendStore.openSearch.secretRef must name a Secret in the namespace karmada-system"},
		"an odd address":    {withBackend(registryOf("r", nil, "v1:Pod:"), names.SystemNamespace, engine, "search:9200"), nil, "False Invalid spec.backendStore.openSearch.addresses[1]: it must begin with https:// or http://"},
	} {
		got := registry.Select([]*searchv1alpha1.ResourceRegistry{test.of}).Indexed("Indexed", clusters, test.progress)["r"]
		if text := fmt.Sprintf("%s %s %s", got.Status, got.Reason, got.Message); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}
