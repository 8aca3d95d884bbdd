package testenv

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Refusal makes an API server refuse requests, as an admission policy of an administrator might.
type Refusal struct {
	// Operation, Group, Resource and Name select the requests. Names must be unique to the test.
	Operation             admissionregistrationv1.OperationType
	Group, Resource, Name string
	// Unless is a CEL expression for requests that pass; empty means none.
	Unless string
	// Words is the error message.
	Words string
	// Probe makes a request to be refused, as a dry run.
	Probe func(ctx context.Context) error
}

// Refuse returns when the API server refuses the requests. The returned function and the end of the test lift the refusal.
func Refuse(t testing.TB, config *rest.Config, r Refusal) (relent func()) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	policies, bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	name := metav1.ObjectMeta{Name: "refusal-" + rand.String(8)}
	relent = func() {
		ctx := context.Background()
		_ = bindings.Delete(ctx, name.Name, metav1.DeleteOptions{})
		_ = policies.Delete(ctx, name.Name, metav1.DeleteOptions{})
	}
	t.Cleanup(relent)
	_, err = policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: r.policy()}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the API server refuses", func(ctx context.Context) (bool, error) {
		err := r.Probe(ctx)
		if err == nil {
			return false, errors.New("the request was accepted")
		}
		return strings.Contains(err.Error(), r.Words), err
	})
	return relent
}

func (r *Refusal) policy() admissionregistrationv1.ValidatingAdmissionPolicySpec {
	unless := r.Unless
	if unless == "" {
		unless = "false"
	}
	return admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			ResourceNames: []string{r.Name},
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{r.Operation},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{r.Group}, APIVersions: []string{"*"}, Resources: []string{r.Resource}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: unless, Message: r.Words}},
	}
}
