package remedy

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	remedyv1alpha1 "github.com/cellplane/cellplane/api/remedy/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/hubtest"
)

func decision(operator remedyv1alpha1.ClusterConditionOperator, status string) remedyv1alpha1.DecisionMatch {
	return remedyv1alpha1.DecisionMatch{ClusterConditionMatch: &remedyv1alpha1.ClusterConditionRequirement{
		ConditionType: remedyv1alpha1.ServiceDomainNameResolutionReady, Operator: operator, ConditionStatus: status,
	}}
}

func TestActions(t *testing.T) {
	equal, notEqual := remedyv1alpha1.ClusterConditionEqual, remedyv1alpha1.ClusterConditionNotEqual
	bad := []metav1.Condition{{Type: string(remedyv1alpha1.ServiceDomainNameResolutionReady), Status: metav1.ConditionFalse}}
	asked := []string{string(remedyv1alpha1.TrafficControl)}
	for name, test := range map[string]struct {
		spec       remedyv1alpha1.RemedySpec
		conditions []metav1.Condition
		want       []string
	}{
		"no decision is a decision":  {want: asked},
		"another cluster":            {spec: remedyv1alpha1.RemedySpec{ClusterAffinity: &remedyv1alpha1.ClusterAffinity{ClusterNames: []string{"other"}}}},
		"no cluster at all":          {spec: remedyv1alpha1.RemedySpec{ClusterAffinity: &remedyv1alpha1.ClusterAffinity{}}},
		"this cluster":               {spec: remedyv1alpha1.RemedySpec{ClusterAffinity: &remedyv1alpha1.ClusterAffinity{ClusterNames: []string{"it"}}}, want: asked},
		"a match":                    {spec: remedyv1alpha1.RemedySpec{DecisionMatches: []remedyv1alpha1.DecisionMatch{decision(equal, "False")}}, conditions: bad, want: asked},
		"no match":                   {spec: remedyv1alpha1.RemedySpec{DecisionMatches: []remedyv1alpha1.DecisionMatch{decision(equal, "True")}}, conditions: bad},
		"one of several":             {spec: remedyv1alpha1.RemedySpec{DecisionMatches: []remedyv1alpha1.DecisionMatch{decision(equal, "True"), decision(notEqual, "True")}}, conditions: bad, want: asked},
		"a condition that is absent": {spec: remedyv1alpha1.RemedySpec{DecisionMatches: []remedyv1alpha1.DecisionMatch{decision(notEqual, "True")}}},
	} {
		t.Run(name, func(t *testing.T) {
			test.spec.Actions = []remedyv1alpha1.RemedyAction{remedyv1alpha1.TrafficControl}
			cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "it"}, Status: clusterv1alpha1.ClusterStatus{Conditions: test.conditions}}
			remedies := []remedyv1alpha1.Remedy{{Spec: test.spec}, {Spec: test.spec}} // the same twice is once
			if got := actions(cluster, remedies); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestRemedyActions(t *testing.T) {
	hub := hubtest.Start(t, func(_ context.Context, mgr manager.Manager) error { return Add(mgr) })
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{})
	remedy := &remedyv1alpha1.Remedy{ObjectMeta: metav1.ObjectMeta{Name: hub.Name}, Spec: remedyv1alpha1.RemedySpec{
		ClusterAffinity: &remedyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster.Name}},
		DecisionMatches: []remedyv1alpha1.DecisionMatch{decision(remedyv1alpha1.ClusterConditionEqual, "False")},
		Actions:         []remedyv1alpha1.RemedyAction{remedyv1alpha1.TrafficControl, "Drain"}, // the latter is for the user's own controllers
	}}
	if err := hub.Client.Create(t.Context(), remedy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), remedy) })
	asked := func(c *clusterv1alpha1.Cluster) bool {
		return slices.Equal(c.Status.RemedyActions, []string{"Drain", string(remedyv1alpha1.TrafficControl)})
	}
	none := func(c *clusterv1alpha1.Cluster) bool { return len(c.Status.RemedyActions) == 0 }
	kind := string(remedyv1alpha1.ServiceDomainNameResolutionReady)
	hub.SetCondition(t, cluster, kind, metav1.ConditionFalse)
	hub.Eventually(t, "the actions are asked for", cluster, asked)
	hub.SetCondition(t, cluster, kind, metav1.ConditionTrue)
	hub.Eventually(t, "they are no longer asked for", cluster, none)
	hub.SetCondition(t, cluster, kind, metav1.ConditionFalse)
	hub.Eventually(t, "they are asked for again", cluster, asked)
	if err := hub.Client.Delete(t.Context(), remedy); err != nil {
		t.Fatal(err)
	}
	hub.Eventually(t, "they go with the remedy", cluster, none)
}
