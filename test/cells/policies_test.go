package cells

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/testenv"
)

const refusal = "nobody writes anything"

// denyEverything refuses all writes of all kinds by everybody, except the users of this test and the stock controllers, which are subject to
// policies as in every cluster. What Cellplane does by itself has to go on.
func (w *world) denyEverything() {
	w.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny-everything"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		},
	}}}
	policy.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "others",
		Expression: "request.userInfo.username != 'cellplane-admin' && request.userInfo.username != 'system:kube-controller-manager' && " +
			"!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
	}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false", Message: refusal}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "deny-everything"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	admission := w.gateway.AdmissionregistrationV1()
	if _, err := admission.ValidatingAdmissionPolicies().Create(w.Context(), policy, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.checkDenied()
}

// checkDenied writes as another user, in all cells and on the hub.
func (w *world) checkDenied() {
	w.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:masters"}}
	alice := kubernetes.NewForConfigOrDie(config)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for i := range 16 {
		name := fmt.Sprintf("denied-%d", i)
		if _, err := alice.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, dryRun); err == nil || !strings.Contains(err.Error(), refusal) {
			w.Errorf("a policy does not apply to ConfigMap %s: %v", name, err)
		}
	}
	testenv.Eventually(w.T, "the policy applies on the hub", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "denied"}}, dryRun)
		return err != nil && strings.Contains(err.Error(), refusal), err
	})
}
