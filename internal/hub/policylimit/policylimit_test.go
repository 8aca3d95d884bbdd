package policylimit_test

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/hub/policylimit"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// TestLimiter refuses everything on a real API server, with a policy written past the gateways. The limiter is not blocked by it, and after
// it nobody is.
func TestLimiter(t *testing.T) {
	server := testenv.SharedAPIServer(t)
	client := server.Client(t)
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	namespace := server.Namespace(t) // other tests use the server, too
	everything := &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			},
		}},
	}
	deny, own := namespace, namespace+".cellplane.io"
	for _, name := range []string{deny, own} {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec.MatchConstraints = everything
		policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false"}}
		if name == own {
			policy.Spec.Validations[0].Expression = "true"
		}
		if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: deny}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = deny, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{deny, own} {
			if err := policies.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	write := func(ctx context.Context) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	testenv.Eventually(t, "everything is refused", func(ctx context.Context) (bool, error) { return write(ctx) != nil, nil })

	ctx, stop := context.WithCancel(t.Context())
	limiter, err := policylimit.New(server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		limiter.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	testenv.Eventually(t, "the control plane is not blocked", func(ctx context.Context) (bool, error) {
		err := write(ctx)
		return err == nil, err
	})
	limited, err := policies.Get(t.Context(), deny, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if conditions := limited.Spec.MatchConditions; len(conditions) != 1 || conditions[0].Expression != userpolicy.ConditionExpression {
		t.Errorf("the match conditions are %v", conditions)
	}
	if found, err := policies.Get(t.Context(), own, metav1.GetOptions{}); err != nil || len(found.Spec.MatchConditions) != 0 {
		t.Errorf("the control plane's own policy was changed: %v, %v", found.Spec.MatchConditions, err)
	}
}
