package policies

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

var deployments = policyv1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "Deployment"}

type change func(*policyv1alpha1.PropagationSpec)

func named(name string) change {
	return func(spec *policyv1alpha1.PropagationSpec) { spec.ResourceSelectors[0].Name = name }
}

func labelled(value string) change {
	return func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors[0].LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}
	}
}

func prioritised(priority int32) change {
	return func(spec *policyv1alpha1.PropagationSpec) { spec.Priority = ptr.To(priority) }
}

func preempting(spec *policyv1alpha1.PropagationSpec) { spec.Preemption = policyv1alpha1.PreemptAlways }

func inside(namespace string) change {
	return func(spec *policyv1alpha1.PropagationSpec) { spec.ResourceSelectors[0].Namespace = namespace }
}

func pp(name string, changes ...change) *Policy {
	p := &policyv1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	p.Labels = map[string]string{"propagationpolicy.karmada.io/permanent-id": "pp/" + name}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{deployments}
	for _, change := range changes {
		change(&p.Spec)
	}
	return Compile(p)
}

func cpp(name string, changes ...change) *Policy {
	p := &policyv1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Labels = map[string]string{"clusterpropagationpolicy.karmada.io/permanent-id": "cpp/" + name}
	p.Spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{deployments}
	for _, change := range changes {
		change(&p.Spec)
	}
	return CompileCluster(p)
}

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name                 string
		policies             []*Policy
		claimed, claimedByCP string
		preemption           bool
		want, from           string
	}{
		{name: "nothing matches", policies: []*Policy{pp("a", named("other")), cpp("b", inside("elsewhere")), pp("c", inside("elsewhere"))}},
		{name: "priority first", policies: []*Policy{pp("a", named("web")), pp("b", prioritised(1))}, want: "pp/b"},
		{name: "then name over labels", policies: []*Policy{pp("a", labelled("web")), pp("b", named("web"))}, want: "pp/b"},
		{name: "a name matches whatever the labels", policies: []*Policy{pp("a", named("web"), labelled("other"))}, want: "pp/a"},
		{name: "the narrowest of several selectors counts", policies: []*Policy{pp("a", labelled("web")), pp("b", func(spec *policyv1alpha1.PropagationSpec) {
			byName := deployments
			byName.Name = "web"
			spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{byName, deployments}
		})}, want: "pp/b"},
		{name: "another version is another kind", policies: []*Policy{pp("a", func(spec *policyv1alpha1.PropagationSpec) { spec.ResourceSelectors[0].APIVersion = "apps/v1beta1" })}},
		{name: "then labels over kind", policies: []*Policy{pp("a"), pp("b", labelled("web"))}, want: "pp/b"},
		{name: "then the smaller name", policies: []*Policy{pp("b"), pp("a")}, want: "pp/a"},
		{name: "a policy of the namespace comes first whatever the priority", policies: []*Policy{cpp("a", named("web"), prioritised(9)), pp("b")}, want: "pp/b"},
		{name: "a claim stays", policies: []*Policy{pp("a", prioritised(9)), pp("b")}, claimed: "pp/b", want: "pp/b"},
		{name: "a claim of a cluster policy stays", policies: []*Policy{pp("a"), cpp("b")}, claimedByCP: "cpp/b", want: "cpp/b"},
		{name: "of two claims the policy of the namespace wins", policies: []*Policy{pp("a"), cpp("b", prioritised(9))}, claimed: "pp/a", claimedByCP: "cpp/b", want: "pp/a"},
		{name: "a claim of a policy that no longer matches is dropped", policies: []*Policy{pp("a"), pp("b", named("other"))}, claimed: "pp/b", want: "pp/a"},
		{name: "a claim of a missing policy is dropped", policies: []*Policy{pp("a")}, claimed: "pp/gone", want: "pp/a"},
		{name: "preemption is disabled", policies: []*Policy{pp("a", prioritised(9), preempting), pp("b")}, claimed: "pp/b", want: "pp/b"},
		{name: "a higher priority preempts", policies: []*Policy{pp("a", prioritised(9), preempting), pp("b")}, claimed: "pp/b", preemption: true, want: "pp/a", from: "pp/b"},
		{name: "an equal priority does not preempt", policies: []*Policy{pp("a", preempting), pp("b")}, claimed: "pp/b", preemption: true, want: "pp/b"},
		{name: "a policy without preemption does not preempt", policies: []*Policy{pp("a", prioritised(9)), pp("b")}, claimed: "pp/b", preemption: true, want: "pp/b"},
		{name: "a policy of the namespace preempts a cluster policy", policies: []*Policy{pp("a", preempting), cpp("b", prioritised(9))}, claimedByCP: "cpp/b", preemption: true, want: "pp/a", from: "cpp/b"},
		{name: "a cluster policy preempts a cluster policy", policies: []*Policy{cpp("a", prioritised(9), preempting), cpp("b")}, claimedByCP: "cpp/b", preemption: true, want: "cpp/a", from: "cpp/b"},
		{name: "a cluster policy does not preempt a policy of the namespace", policies: []*Policy{cpp("a", prioritised(9), preempting), pp("b")}, claimed: "pp/b", preemption: true, want: "pp/b"},
		{name: "an empty label selector matches all", policies: []*Policy{pp("a", func(spec *policyv1alpha1.PropagationSpec) {
			spec.ResourceSelectors[0].LabelSelector = &metav1.LabelSelector{}
		})}, want: "pp/a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			index := NewIndex()
			for _, policy := range test.policies {
				index.Set(policy)
			}
			subject := &Subject{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "ns", Name: "web", Labels: map[string]string{"app": "web"}}
			chosen, preempted := index.Choose(subject, Options{ClaimedBy: test.claimed, ClusterClaimedBy: test.claimedByCP, Preemption: test.preemption})
			if id(chosen) != test.want || id(preempted) != test.from {
				t.Errorf("chose %q from %q, want %q from %q", id(chosen), id(preempted), test.want, test.from)
			}
		})
	}
}

func id(p *Policy) string {
	if p == nil {
		return ""
	}
	return p.ID
}

func TestIndexRemoves(t *testing.T) {
	index := NewIndex()
	index.Set(pp("a", named("web")))
	if old := index.Set(pp("a", named("other"))); id(old) != "pp/a" {
		t.Errorf("the replaced policy is %q", id(old))
	}
	subject := &Subject{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: "ns", Name: "web"}
	if chosen, _ := index.Choose(subject, Options{ClaimedBy: "pp/a"}); chosen != nil {
		t.Errorf("a stale selector chose %s", chosen)
	}
	index.Unset("ns", "a")
	if index.ByID("pp/a") != nil || len(index.namespaced.selectors) != 0 {
		t.Error("the index still has entries of a removed policy")
	}
}

func TestInvalidSelectors(t *testing.T) {
	p := pp("a", func(spec *policyv1alpha1.PropagationSpec) {
		spec.ResourceSelectors = []policyv1alpha1.ResourceSelector{
			{APIVersion: "a/b/c", Kind: "Deployment"},
			{APIVersion: "apps/v1", Kind: "Deployment", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Bogus"}}}},
		}
	})
	if len(p.Invalid) != 2 || len(p.Scopes()) != 0 {
		t.Errorf("invalid are %v, scopes %v", p.Invalid, p.Scopes())
	}
}
