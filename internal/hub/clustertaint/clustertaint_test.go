package clustertaint

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	"github.com/cellplane/cellplane/internal/hub/hubtest"
	"github.com/cellplane/cellplane/internal/testenv"
)

func conditions(pairs ...string) []metav1.Condition {
	var all []metav1.Condition
	for _, pair := range pairs {
		kind, status, _ := strings.Cut(pair, "=")
		all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status)})
	}
	return all
}

func match(kind string, operator policyv1alpha1.MatchConditionOperator, statuses ...metav1.ConditionStatus) policyv1alpha1.MatchCondition {
	return policyv1alpha1.MatchCondition{ConditionType: kind, Operator: operator, StatusValues: statuses}
}

func policy(add, remove []policyv1alpha1.MatchCondition, taints ...policyv1alpha1.Taint) *policyv1alpha1.ClusterTaintPolicy {
	return &policyv1alpha1.ClusterTaintPolicy{Spec: policyv1alpha1.ClusterTaintPolicySpec{AddOnConditions: add, RemoveOnConditions: remove, Taints: taints}}
}

func TestApply(t *testing.T) {
	in, notIn := policyv1alpha1.MatchConditionOpIn, policyv1alpha1.MatchConditionOpNotIn
	bad := policyv1alpha1.Taint{Key: "bad", Effect: corev1.TaintEffectNoExecute}
	dnsBad := []policyv1alpha1.MatchCondition{match("DNS", in, "False", "Unknown")}
	dnsGood := []policyv1alpha1.MatchCondition{match("DNS", in, "True")}
	for name, test := range map[string]struct {
		before     []corev1.Taint
		conditions []metav1.Condition
		policy     *policyv1alpha1.ClusterTaintPolicy
		want       string
	}{
		"ready":                       {before: []corev1.Taint{notReady, unreachable, {Key: "mine", Effect: "NoExecute"}}, conditions: conditions("Ready=True"), want: "mine:NoExecute"},
		"not ready":                   {before: []corev1.Taint{unreachable}, conditions: conditions("Ready=False"), want: "cluster.karmada.io/not-ready:NoSchedule"},
		"unknown":                     {before: []corev1.Taint{notReady}, conditions: conditions("Ready=Unknown"), want: "cluster.karmada.io/unreachable:NoSchedule"},
		"nothing known":               {before: []corev1.Taint{notReady}, want: "cluster.karmada.io/not-ready:NoSchedule"},
		"a policy adds":               {conditions: conditions("DNS=False"), policy: policy(dnsBad, dnsGood, bad), want: "bad:NoExecute"},
		"a policy removes":            {before: []corev1.Taint{{Key: "bad", Effect: "NoExecute", Value: "x"}}, conditions: conditions("DNS=True"), policy: policy(dnsBad, dnsGood, bad), want: ""},
		"a policy replaces a value":   {before: []corev1.Taint{{Key: "bad", Effect: "NoExecute", Value: "old"}}, conditions: conditions("DNS=False"), policy: policy(dnsBad, nil, bad), want: "bad:NoExecute"},
		"another effect is another":   {before: []corev1.Taint{{Key: "bad", Effect: "NoSchedule"}}, conditions: conditions("DNS=True"), policy: policy(nil, dnsGood, bad), want: "bad:NoSchedule"},
		"removing is the last word":   {conditions: conditions("DNS=True"), policy: policy(dnsGood, dnsGood, bad), want: ""},
		"all must match":              {conditions: conditions("DNS=False", "Net=True"), policy: policy(append(slices.Clone(dnsBad), match("Net", in, "False")), nil, bad), want: ""},
		"an empty list never matches": {conditions: conditions("DNS=False"), policy: policy([]policyv1alpha1.MatchCondition{}, nil, bad), want: ""},
		"all taints are put on, with their values": {
			before: []corev1.Taint{{Key: "a", Value: "0", Effect: "NoSchedule"}}, conditions: conditions("DNS=False"),
			policy: policy(dnsBad, dnsGood, policyv1alpha1.Taint{Key: "a", Value: "1", Effect: "NoSchedule"}, bad), want: "a=1:NoSchedule,bad:NoExecute",
		},
		"all taints are taken off": {
			before: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "bad", Effect: "NoExecute"}}, conditions: conditions("DNS=True"),
			policy: policy(dnsBad, dnsGood, policyv1alpha1.Taint{Key: "a", Effect: "NoSchedule"}, bad), want: "",
		},
		"what is absent matches nothing": {conditions: conditions("Ready=True"), policy: policy(dnsBad, nil, bad), want: ""},
		"NotIn":                          {conditions: conditions("DNS=Unknown"), policy: policy([]policyv1alpha1.MatchCondition{match("DNS", notIn, "True")}, nil, bad), want: "bad:NoExecute"},
		"NotIn listed":                   {conditions: conditions("DNS=True"), policy: policy([]policyv1alpha1.MatchCondition{match("DNS", notIn, "True")}, nil, bad), want: ""},
		"NotIn of what is absent":        {policy: policy([]policyv1alpha1.MatchCondition{match("DNS", notIn, "True")}, nil, bad), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := taints{list: slices.Clone(test.before), now: time.Unix(1, 0)}
			var policies []*policyv1alpha1.ClusterTaintPolicy
			if test.policy != nil {
				policies = append(policies, test.policy)
			}
			changed.apply(test.conditions, policies)
			var texts []string
			for _, taint := range changed.list {
				texts = append(texts, taint.ToString())
				if added := !slices.Contains(test.before, taint); added && (taint.Effect == corev1.TaintEffectNoExecute) != (taint.TimeAdded != nil) {
					t.Errorf("taint %s was added at %v", taint.ToString(), taint.TimeAdded)
				}
			}
			if got := strings.Join(texts, ","); got != test.want {
				t.Errorf("the taints are %q, want %q", got, test.want)
			}
		})
	}
}

func TestSeveralPolicies(t *testing.T) {
	in := policyv1alpha1.MatchConditionOpIn
	down := []policyv1alpha1.MatchCondition{match("DNS", in, "False")}
	a, b := policyv1alpha1.Taint{Key: "a", Effect: corev1.TaintEffectNoSchedule}, policyv1alpha1.Taint{Key: "b", Effect: corev1.TaintEffectNoSchedule}
	changed := taints{}
	changed.apply(conditions("DNS=False"), []*policyv1alpha1.ClusterTaintPolicy{policy(down, nil, a), policy(down, nil, b), policy(nil, down, a)})
	if len(changed.list) != 1 || changed.list[0].Key != "b" {
		t.Errorf("got %v, want only b: all policies apply, the last one wins", changed.list)
	}
}

// Evictions depend on the time at which a taint was added, so the same conditions must not change it.
func TestTaintKeepsItsTime(t *testing.T) {
	long := metav1.NewTime(time.Unix(1, 0))
	changed := taints{list: []corev1.Taint{{Key: "bad", Effect: corev1.TaintEffectNoExecute, TimeAdded: &long}}, now: time.Unix(1000, 0)}
	down := []policyv1alpha1.MatchCondition{match("DNS", policyv1alpha1.MatchConditionOpIn, "False")}
	changed.apply(conditions("DNS=False"), []*policyv1alpha1.ClusterTaintPolicy{policy(down, nil, policyv1alpha1.Taint{Key: "bad", Effect: corev1.TaintEffectNoExecute})})
	if len(changed.list) != 1 || !changed.list[0].TimeAdded.Equal(&long) {
		t.Errorf("the taints are %v, want the one from before", changed.list)
	}
}

func TestTaintsFollowConditions(t *testing.T) {
	hub := hubtest.Start(t, func(_ context.Context, mgr manager.Manager) error { return Add(mgr) })
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{})
	other := hub.Cluster(t, "b", clusterv1alpha1.ClusterSpec{})
	has := func(keys ...string) func(*clusterv1alpha1.Cluster) bool {
		return func(c *clusterv1alpha1.Cluster) bool {
			var got []string
			for _, taint := range c.Spec.Taints {
				got = append(got, taint.Key)
			}
			slices.Sort(got)
			return slices.Equal(got, keys)
		}
	}
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionFalse)
	hub.Eventually(t, "it is tainted not-ready", cluster, has(names.NotReadyTaint))
	hub.EventuallyEvent(t, cluster, names.EventTaintClusterSucceed)
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionUnknown)
	hub.Eventually(t, "it is tainted unreachable", cluster, has(names.UnreachableTaint))
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionTrue)
	hub.Eventually(t, "it is not tainted", cluster, has())

	p := policy([]policyv1alpha1.MatchCondition{match("DNS", policyv1alpha1.MatchConditionOpIn, "False")},
		[]policyv1alpha1.MatchCondition{match("DNS", policyv1alpha1.MatchConditionOpIn, "True")}, policyv1alpha1.Taint{Key: "dns", Effect: corev1.TaintEffectNoSchedule})
	p.Name = hub.Name
	p.Spec.TargetClusters = &policyv1alpha1.ClusterAffinity{ClusterNames: []string{cluster.Name}}
	for _, c := range []*clusterv1alpha1.Cluster{cluster, other} {
		hub.SetCondition(t, c, "DNS", metav1.ConditionFalse)
	}
	if err := hub.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Client.Delete(context.Background(), p) })
	hub.Eventually(t, "the policy has tainted it", cluster, has("dns"))
	hub.SetCondition(t, cluster, "DNS", metav1.ConditionTrue)
	hub.Eventually(t, "the policy has removed the taint", cluster, has())
	hub.SetCondition(t, cluster, "DNS", metav1.ConditionFalse)
	hub.Eventually(t, "the policy has tainted it again", cluster, has("dns"))
	// Without the policy the taint stays, whatever the conditions say.
	if err := hub.Client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	hub.SetCondition(t, cluster, "DNS", metav1.ConditionTrue)
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionFalse)
	hub.Eventually(t, "the taint outlives the policy", cluster, has(names.NotReadyTaint, "dns"))
	untouched := &clusterv1alpha1.Cluster{}
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(other), untouched); err != nil || len(untouched.Spec.Taints) != 0 {
		t.Errorf("a cluster that no policy targets has taints %v (%v)", untouched.Spec.Taints, err)
	}
}

// A failure to add taints is an event of the Cluster, and is retried.
func TestTaintsAreRefused(t *testing.T) {
	hub := hubtest.Start(t, func(_ context.Context, mgr manager.Manager) error { return Add(mgr) })
	cluster := hub.Cluster(t, "a", clusterv1alpha1.ClusterSpec{})
	relent := testenv.Refuse(t, testenv.SharedAPIServer(t).RESTConfig(), testenv.Refusal{
		Operation: admissionregistrationv1.Update, Group: clusterv1alpha1.GroupName, Resource: "clusters", Name: cluster.Name, Words: "no taints today",
		Probe: func(ctx context.Context) error {
			patch := []byte(`{"spec":{"taints":[{"key":"probe","effect":"NoSchedule"}]}}`)
			return hub.Client.Patch(ctx, cluster.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
		},
	})
	hub.SetCondition(t, cluster, names.ClusterReady, metav1.ConditionFalse)
	hub.EventuallyEvent(t, cluster, names.EventTaintClusterFailed)
	relent()
	hub.Eventually(t, "it is tainted not-ready", cluster, func(c *clusterv1alpha1.Cluster) bool {
		return len(c.Spec.Taints) == 1 && c.Spec.Taints[0].Key == names.NotReadyTaint
	})
	hub.EventuallyEvent(t, cluster, names.EventTaintClusterSucceed)
}
