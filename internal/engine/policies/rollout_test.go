package policies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/rollout/stages"
)

func rolloutOf(namespace, name string, priority int32, selectors ...policyv1alpha1.ResourceSelector) *Rollout {
	return CompileRollout(namespace, name, &cellplanev1alpha1.RolloutPolicySpec{Priority: priority, ResourceSelectors: selectors})
}

// TestChooseRollout has one case per rule of precedence.
func TestChooseRollout(t *testing.T) {
	all := policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment"}
	byName, byLabel, elsewhere := all, all, all
	byName.Name = "web"
	byLabel.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	elsewhere.Namespace = "other"
	subject := &Subject{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}
	for name, test := range map[string]struct {
		policies []*Rollout
		want     string
	}{
		"none":                                   {nil, ""},
		"one of another namespace":               {[]*Rollout{rolloutOf("other", "a", 0, all)}, ""},
		"one that selects in another namespace":  {[]*Rollout{rolloutOf("shop", "a", 0, elsewhere)}, ""},
		"one for all":                            {[]*Rollout{rolloutOf("", "a", 0, all)}, "ClusterRolloutPolicy a"},
		"that of the namespace before all":       {[]*Rollout{rolloutOf("", "a", 9, byName), rolloutOf("shop", "b", 0, all)}, "RolloutPolicy shop/b"},
		"the highest priority":                   {[]*Rollout{rolloutOf("shop", "a", 0, byName), rolloutOf("shop", "b", 1, all)}, "RolloutPolicy shop/b"},
		"then the narrowest selector":            {[]*Rollout{rolloutOf("shop", "a", 0, byLabel), rolloutOf("shop", "b", 0, byName)}, "RolloutPolicy shop/b"},
		"then the first name":                    {[]*Rollout{rolloutOf("shop", "b", 0, all), rolloutOf("shop", "a", 0, all)}, "RolloutPolicy shop/a"},
		"the narrowest of several selectors":     {[]*Rollout{rolloutOf("shop", "a", 0, byLabel), rolloutOf("shop", "b", 0, all, byName)}, "RolloutPolicy shop/b"},
		"another kind is not selected":           {[]*Rollout{rolloutOf("shop", "a", 0, policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "StatefulSet"})}, ""},
		"a policy that was replaced counts once": {[]*Rollout{rolloutOf("shop", "a", 0, all), rolloutOf("shop", "a", 0, elsewhere)}, ""},
	} {
		var set Rollouts
		for _, policy := range test.policies {
			set.Set(policy)
		}
		got := ""
		if chosen := set.Choose(subject); chosen != nil {
			got = chosen.String()
		}
		if got != test.want {
			t.Errorf("%s: %q is chosen, want %q", name, got, test.want)
		}
		for _, policy := range test.policies {
			set.Unset(policy.Namespace, policy.Name)
		}
		if set.Choose(subject) != nil || len(set.of) != 0 {
			t.Errorf("%s: policies are left", name)
		}
	}
}

// TestStagesOfClusters divides clusters into stages.
func TestStagesOfClusters(t *testing.T) {
	policy := CompileRollout("shop", "staged", &cellplanev1alpha1.RolloutPolicySpec{
		Stages: []cellplanev1alpha1.RolloutStage{
			{Name: "canary", Clusters: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}, Soak: &metav1.Duration{Duration: time.Minute}},
			{Name: "north", Clusters: &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"site": "north"}}}, MaxClusters: ptr.To(intstr.FromString("30%"))},
			{Name: "south", Clusters: &policyv1alpha1.ClusterAffinity{ClusterNames: []string{"e"}}, MaxClusters: ptr.To(intstr.FromInt32(3)), Approval: true},
		},
		Failure: &cellplanev1alpha1.RolloutFailure{ToleratedClusters: 2},
	})
	cluster := func(name, site string) *clusterv1alpha1.Cluster {
		return &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"site": site}}}
	}
	got, of := policy.Stages([]*clusterv1alpha1.Cluster{cluster("a", "north"), cluster("b", "north"), cluster("c", "north"), cluster("d", "east"), cluster("e", "south"), cluster("f", "north"), cluster("g", "north")})
	want := stages.Policy{Tolerated: 2, Stages: []stages.Stage{
		{Name: "canary", Soak: time.Minute}, {Name: "north", AtOnce: 2}, {Name: "south", AtOnce: 3, Approval: true}, {Name: "of all other clusters"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the stages (-want +got):\n%s", diff)
	}
	if !slices.Equal(of, []int{0, 1, 1, 3, 2, 1, 1}) {
		t.Errorf("clusters are in the stages %v", of)
	}

	invalid := CompileRollout("", "invalid", &cellplanev1alpha1.RolloutPolicySpec{Stages: []cellplanev1alpha1.RolloutStage{{Name: "first", Clusters: &policyv1alpha1.ClusterAffinity{
		FieldSelector: &policyv1alpha1.FieldSelector{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "planet", Operator: corev1.NodeSelectorOpIn, Values: []string{"mars"}}}},
	}}}})
	if invalid.Invalid == nil || !strings.Contains(invalid.Invalid.Error(), "stage first of ClusterRolloutPolicy invalid: clusters: fieldSelector") {
		t.Errorf("an invalid stage gets %v", invalid.Invalid)
	}
}
