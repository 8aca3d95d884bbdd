package affinity_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/affinity"
)

func cluster(name string, edit ...func(*clusterv1alpha1.Cluster)) *clusterv1alpha1.Cluster {
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, e := range edit {
		e(c)
	}
	return c
}

func labelled(key, value string) func(*clusterv1alpha1.Cluster) {
	return func(c *clusterv1alpha1.Cluster) { metav1.SetMetaDataLabel(&c.ObjectMeta, key, value) }
}

func placed(provider, region string, zones ...string) func(*clusterv1alpha1.Cluster) {
	return func(c *clusterv1alpha1.Cluster) {
		c.Spec.Provider, c.Spec.Region, c.Spec.Zones = provider, region, zones
	}
}

func field(key string, operator corev1.NodeSelectorOperator, values ...string) *policyv1alpha1.FieldSelector {
	return &policyv1alpha1.FieldSelector{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: operator, Values: values},
	}}
}

func TestMatches(t *testing.T) {
	plain := cluster("a")
	prod := cluster("b", labelled("env", "prod"), placed("aws", "eu", "z1", "z2"))
	legacy := cluster("c", func(c *clusterv1alpha1.Cluster) { c.Spec.Zone = "z1" })
	all := []*clusterv1alpha1.Cluster{plain, prod, legacy}
	prodLabel := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}

	for name, tt := range map[string]struct {
		affinity *policyv1alpha1.ClusterAffinity
		want     string
	}{
		"nil matches all":                 {nil, "abc"},
		"empty matches all":               {&policyv1alpha1.ClusterAffinity{}, "abc"},
		"empty selectors match all":       {&policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{}, FieldSelector: &policyv1alpha1.FieldSelector{}}, "abc"},
		"names":                           {&policyv1alpha1.ClusterAffinity{ClusterNames: []string{"a", "c", "x"}}, "ac"},
		"exclude":                         {&policyv1alpha1.ClusterAffinity{ExcludeClusters: []string{"a"}}, "bc"},
		"exclude wins over names":         {&policyv1alpha1.ClusterAffinity{ClusterNames: []string{"a", "b"}, ExcludeClusters: []string{"a"}}, "b"},
		"labels":                          {&policyv1alpha1.ClusterAffinity{LabelSelector: prodLabel}, "b"},
		"labels and names are ANDed":      {&policyv1alpha1.ClusterAffinity{LabelSelector: prodLabel, ClusterNames: []string{"a"}}, ""},
		"labels and fields are ANDed":     {&policyv1alpha1.ClusterAffinity{LabelSelector: prodLabel, FieldSelector: field("provider", "In", "gcp")}, ""},
		"provider in":                     {&policyv1alpha1.ClusterAffinity{FieldSelector: field("provider", "In", "gcp", "aws")}, "b"},
		"provider not in keeps unset":     {&policyv1alpha1.ClusterAffinity{FieldSelector: field("provider", "NotIn", "aws")}, "ac"},
		"region in":                       {&policyv1alpha1.ClusterAffinity{FieldSelector: field("region", "In", "eu")}, "b"},
		"region exists":                   {&policyv1alpha1.ClusterAffinity{FieldSelector: field("region", "Exists")}, "b"},
		"region does not exist":           {&policyv1alpha1.ClusterAffinity{FieldSelector: field("region", "DoesNotExist")}, "ac"},
		"unset region is never in":        {&policyv1alpha1.ClusterAffinity{FieldSelector: field("region", "In", "")}, ""},
		"zone in needs all zones":         {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "In", "z1")}, "c"},
		"zone in superset":                {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "In", "z1", "z2", "z3")}, "bc"},
		"zone not in refuses any overlap": {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "NotIn", "z2")}, "ac"},
		"zone exists":                     {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "Exists")}, "bc"},
		"zone does not exist":             {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "DoesNotExist")}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			matcher, err := affinity.Compile(tt.affinity)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, c := range all {
				if matcher.Matches(c) {
					got.WriteString(c.Name)
				}
			}
			if got.String() != tt.want {
				t.Errorf("matched %q, want %q", got.String(), tt.want)
			}
			if everything := tt.want == "abc" && !strings.HasPrefix(name, "zone"); matcher.MatchesEverything() != everything {
				t.Errorf("MatchesEverything() = %v, want %v", !everything, everything)
			}
		})
	}
}

func TestCompileRefusesNonsense(t *testing.T) {
	for name, tt := range map[string]struct {
		affinity *policyv1alpha1.ClusterAffinity
		want     string
	}{
		"unknown field":    {&policyv1alpha1.ClusterAffinity{FieldSelector: field("rack", "In", "x")}, `matchExpressions[0]: unknown key "rack"`},
		"unknown operator": {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "Gt", "1")}, `unknown operator "Gt"`},
		"no operator":      {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "", "1")}, "the operator is missing"},
		"in without value": {&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "In")}, "needs at least one value"},
		"exists with value": {
			&policyv1alpha1.ClusterAffinity{FieldSelector: field("zone", "Exists", "z")}, "takes no values",
		},
		"bad label selector": {
			&policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}, "labelSelector",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := affinity.Compile(tt.affinity); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Compile() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestNamesAreASet checks that a name matches exactly if it is listed and not excluded, for lists of any length.
func TestNamesAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("m", rapid.IntRange(0, 40).Draw(t, "i")) })
		listed := rapid.SliceOf(name).Draw(t, "listed")
		excluded := rapid.SliceOf(name).Draw(t, "excluded")
		asked := name.Draw(t, "asked")

		matcher, err := affinity.Compile(&policyv1alpha1.ClusterAffinity{ClusterNames: listed, ExcludeClusters: excluded})
		if err != nil {
			t.Fatal(err)
		}
		in := func(list []string) bool {
			for _, n := range list {
				if n == asked {
					return true
				}
			}
			return false
		}
		want := (len(listed) == 0 || in(listed)) && !in(excluded)
		if got := matcher.Matches(cluster(asked)); got != want {
			t.Fatalf("Matches() = %v, want %v", got, want)
		}
	})
}

func TestMatchingDoesNotAllocate(t *testing.T) {
	matcher, err := affinity.Compile(&policyv1alpha1.ClusterAffinity{
		ClusterNames:  []string{"a", "b"},
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
		FieldSelector: field("zone", "In", "z1", "z2"),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster("b", labelled("env", "prod"), placed("aws", "eu", "z1", "z2"))
	if allocs := testing.AllocsPerRun(100, func() { matcher.Matches(c) }); allocs != 0 {
		t.Errorf("Matches() allocates %v times", allocs)
	}
}
