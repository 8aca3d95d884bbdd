package gateway_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	admissionapply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/hub/replicate"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// testUserPolicies configures admission through the gateway. It takes effect in all cells with the answer to the write,
// and on the hub a little later.
func testUserPolicies(t *testing.T, w *world) {
	replicator, stop := replicatePolicies(t, w)
	defer stop()
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"Validating", testValidatingPolicy},
		{"Mutating", testMutatingPolicy},
		{"Parameters", testPolicyParameters},
		{"Webhook", testWebhook},
		{"Refused", testRefusedPolicies},
		{"Condition", testPolicyCondition},
		{"CellDown", func(t *testing.T, w *world) { testPolicyWithoutACell(t, w, replicator) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}

// replicatePolicies copies policies, their parameters and namespaces into the cells, in place of the hub manager.
func replicatePolicies(t *testing.T, w *world) (replicator *replicate.Replicator, stop func()) {
	t.Helper()
	rules := slices.DeleteFunc(replicate.Rules(), func(rule *replicate.Rule) bool {
		return rule.Resource.Group != userpolicy.Group && rule.Resource.Resource != "namespaces" && rule.Resource != userpolicy.Parameters
	})
	for _, rule := range rules {
		rule.Definition = "" // the cells have it, and definitions are not copied here
	}
	replicator, err := replicate.New(adminOf(t, w.Hub), replicate.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range w.Cells {
		if err := replicator.SetCell(cell.Name(), adminOf(t, cell)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = replicator.Start(ctx) })
	return replicator, func() {
		cancel()
		running.Wait()
	}
}

func ruleFor(resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
	}
}

// namespace creates a namespace through the gateway. It is copied into the cells.
func (w *world) namespace(t *testing.T, name string) string {
	t.Helper()
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// as returns a client for a user who may do everything, and whose name begins with master-.
func (w *world) as(t *testing.T, name string, warnings rest.WarningHandler) kubernetes.Interface {
	t.Helper()
	config := w.gateway.ConfigFor(t, "master-"+name, "system:masters")
	config.WarningHandler = warnings
	return clientFor(t, config)
}

// create tries to create ConfigMaps in all cells, and returns what they look like and how often that was refused.
func createEverywhere(t *testing.T, client kubernetes.Interface, namespace string) (created []*corev1.ConfigMap, refused []error) {
	t.Helper()
	for i := range 12 {
		object, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", i)}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			refused = append(refused, err)
			continue
		}
		created = append(created, object)
	}
	return created, refused
}

func testValidatingPolicy(t *testing.T, w *world) {
	namespace := w.namespace(t, "validated")
	other := w.namespace(t, "not-validated")
	alice, bob, warnings := w.as(t, "alice", nil), w.as(t, "bob", nil), &collected{}
	admission := w.as(t, "admin", warnings).AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "not-alice"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		{RuleWithOperations: ruleFor("configmaps", "serviceaccounts")},
	}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: "request.userInfo.username != 'master-alice' || namespaceObject.metadata.name != 'validated'", Message: "alice may not",
	}}
	if _, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the types in the policy are checked", func(ctx context.Context) (bool, error) {
		got, err := admission.ValidatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{})
		return err == nil && got.Status.ObservedGeneration == got.Generation && got.Status.TypeChecking != nil, err
	})
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "not-alice"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "the policy applies to alice", func() error {
		if created, refused := createEverywhere(t, alice, namespace); len(created) != 0 || !strings.Contains(refused[0].Error(), "alice may not") {
			return fmt.Errorf("%d of alice's objects pass; %v", len(created), refused)
		}
		return nil
	})
	if _, refused := createEverywhere(t, bob, namespace); len(refused) != 0 {
		t.Errorf("the policy applies to bob: %v", refused[0])
	}
	if _, refused := createEverywhere(t, alice, other); len(refused) != 0 {
		t.Errorf("the policy applies to another namespace: %v", refused[0])
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	testenv.Eventually(t, "the policy applies on the hub", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "alice may not"), err
	})
	if err := admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "a deleted policy is not enforced", func() error {
		_, refused := createEverywhere(t, alice, namespace)
		return errors.Join(refused...)
	})
	if err := admission.ValidatingAdmissionPolicies().Delete(t.Context(), policy.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "the cells have neither the policy nor probes", func() error {
		for _, cell := range w.Cells {
			left, err := clientFor(t, adminOf(t, cell)).AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range left.Items {
				if name := left.Items[i].Name; name == policy.Name || strings.HasPrefix(name, "cellplane-probe-") {
					return fmt.Errorf("%s still has policy %s", cell.Name(), name)
				}
			}
		}
		return nil
	})
}

func testMutatingPolicy(t *testing.T, w *world) {
	namespace, warnings := w.namespace(t, "mutated"), &collected{}
	admission := w.as(t, "admin", warnings).AdmissionregistrationV1()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "label"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: ruleFor("configmaps")}},
	}
	policy.Spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	policy.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"creator": request.userInfo.username}}}`},
	}}
	if _, err := admission.MutatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "label"}}
	binding.Spec.PolicyName = policy.Name
	if _, err := admission.MutatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "the policy labels objects", func() error {
		created, refused := createEverywhere(t, w.as(t, "alice", nil), namespace)
		for _, object := range created {
			if object.Labels["creator"] != "master-alice" {
				return fmt.Errorf("%s has the labels %v", object.Name, object.Labels)
			}
		}
		return errors.Join(refused...)
	})
	if err := admission.MutatingAdmissionPolicyBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := admission.MutatingAdmissionPolicies().Delete(t.Context(), policy.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testWebhook runs a webhook that refuses everything, beside the control planes.
func testWebhook(t *testing.T, w *world) {
	namespace, warnings := w.namespace(t, "hooked"), &collected{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "no, " + review.Request.UserInfo.Username}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhooks := w.as(t, "admin", warnings).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "no"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "no.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL), CABundle: ca},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}},
		AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
	}}}
	if _, err := webhooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "the webhook is called in all cells", func() error {
		if created, refused := createEverywhere(t, w.as(t, "alice", nil), namespace); len(created) != 0 || !strings.Contains(refused[0].Error(), "no, master-alice") {
			return fmt.Errorf("%d objects pass, %v", len(created), refused)
		}
		return nil
	})
	// Who does not come through the gateway is a component.
	for _, plane := range append(slices.Clone(w.Cells), w.Hub) {
		if _, refused := createEverywhere(t, clientFor(t, adminOf(t, plane)), namespace); len(refused) != 0 {
			t.Errorf("the webhook blocks components in %s: %v", plane.Name(), refused[0])
		}
	}
	if err := webhooks.Delete(t.Context(), hook.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testRefusedPolicies(t *testing.T, w *world) {
	for _, test := range []struct{ resource, body, want string }{
		{"validatingadmissionpolicies", `{"kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"true"}]}}`, "spec.paramKind"},
		{"validatingadmissionpolicybindings", `{"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"p","namespace":"default","parameterNotFoundAction":"Allow"}}}`, "spec.paramRef.namespace"},
		{"validatingadmissionpolicybindings", `{"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"p","parameterNotFoundAction":"Deny"}}}`, "must be Allow"},
		{"validatingadmissionpolicies", `{"kind":"ValidatingAdmissionPolicy","metadata":{"name":"cellplane-gateway"},"spec":{"validations":[{"expression":"true"}]}}`, "belong to the control plane"},
		{"validatingadmissionpolicies", `{"kind":"ValidatingAdmissionPolicy","metadata":{"generateName":"cellplane-"},"spec":{"validations":[{"expression":"true"}]}}`, "belong to the control plane"},
		{"validatingadmissionpolicybindings", `{"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"p"},"spec":{"policyName":"cellplane-gateway","validationActions":["Deny"]}}`, "cannot be bound"},
		{"validatingadmissionpolicies", `{"kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":{"validations":[{"expression":"authorizer.requestResource.check('x').allowed()"}]}}`, "spec.validations[0].expression"},
		{"mutatingwebhookconfigurations", `{"kind":"MutatingWebhookConfiguration","metadata":{"name":"p"},"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"name":"a","namespace":"b"}}}]}`, "clientConfig.service"},
	} {
		body := strings.Replace(test.body, "{", `{"apiVersion":"admissionregistration.k8s.io/v1",`, 1)
		err := w.client.AdmissionregistrationV1().RESTClient().Post().Resource(test.resource).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.body, err, test.want)
		}
	}
	// The control plane's own cannot be changed or deleted.
	for _, name := range []string{"cellplane-gateway", "some.cellplane.io"} {
		if err := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), name, metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "belong to the control plane") {
			t.Errorf("deleting %s: %v", name, err)
		}
	}
}

// testPolicyCondition writes a policy in all ways. None removes the match condition that keeps the control plane from being blocked.
func testPolicyCondition(t *testing.T, w *world) {
	for _, encoding := range encodings {
		policies := w.clientWith(t, encoding).AdmissionregistrationV1().ValidatingAdmissionPolicies()
		check := func(how string, got *admissionregistrationv1.ValidatingAdmissionPolicy, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s in %s: %v", how, encoding, err)
			}
			if conditions := got.Spec.MatchConditions; len(conditions) == 0 || conditions[len(conditions)-1].Expression != userpolicy.ConditionExpression {
				t.Errorf("%s in %s: the conditions are %v", how, encoding, conditions)
			}
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}
		policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: ruleFor("pods")}}}
		policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
		created, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
		check("create", created, err)
		var updated *admissionregistrationv1.ValidatingAdmissionPolicy
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // a controller writes the status
			found, err := policies.Get(t.Context(), "limited", metav1.GetOptions{})
			if err != nil {
				return err
			}
			found.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "mine", Expression: "true"}}
			updated, err = policies.Update(t.Context(), found, metav1.UpdateOptions{})
			return err
		})
		check("update", updated, err)
		applied, err := policies.Apply(t.Context(), admissionapply.ValidatingAdmissionPolicy("limited").WithSpec(admissionapply.ValidatingAdmissionPolicySpec().
			WithMatchConditions(admissionapply.MatchCondition().WithName("applied").WithExpression("true"))), metav1.ApplyOptions{FieldManager: "test", Force: true})
		check("apply", applied, err)
		patched, err := policies.Patch(t.Context(), "limited", types.MergePatchType, []byte(`{"spec":{"failurePolicy":"Ignore"}}`), metav1.PatchOptions{})
		check("patch", patched, err)
		for kind, patch := range map[types.PatchType]string{
			types.MergePatchType:          `{"spec":{"matchConditions":null}}`,
			types.StrategicMergePatchType: `{"spec":{"matchConditions":[{"$patch":"delete","name":"` + userpolicy.ConditionName + `"}]}}`,
			types.JSONPatchType:           `[{"op":"remove","path":"/spec/matchConditions"}]`,
		} {
			if _, err := policies.Patch(t.Context(), "limited", kind, []byte(patch), metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), userpolicy.ConditionName) {
				t.Errorf("%s in %s removes the condition: %v", kind, encoding, err)
			}
		}
		asking := []byte(`{"spec":{"validations":[{"expression":"authorizer.requestResource.check('x').allowed()"}]}}`)
		if _, err := policies.Patch(t.Context(), "limited", types.MergePatchType, asking, metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "authorizer is not available") {
			t.Errorf("a patch in %s asks for rights: %v", encoding, err)
		}
		if err := policies.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=limited"}); err != nil {
			t.Fatal(err)
		}
	}
}

// collected are the warnings of answers.
type collected struct {
	mu  sync.Mutex
	all []string
}

func (c *collected) HandleWarningHeader(_ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, text)
}

// take returns how many there are, and forgets them.
func (c *collected) take() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := len(c.all)
	c.all = nil
	return number
}

// enforced checks what the answers promise: that it holds now, or that it will in the cells that a warning names.
func (c *collected) enforced(t *testing.T, what string, check func() error) {
	t.Helper()
	if c.take() == 0 {
		if err := check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	testenv.Eventually(t, what, func(context.Context) (bool, error) { err := check(); return err == nil, err })
}

// testPolicyWithoutACell writes a policy while nothing is copied to a cell. The answer comes after a while and names the cell.
func testPolicyWithoutACell(t *testing.T, w *world, replicator *replicate.Replicator) {
	cell := w.Cells[0]
	replicator.RemoveCell(cell.Name())
	warnings := &collected{}
	policies := w.as(t, "alice", warnings).AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "unbound"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = "none", []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	_, err := policies.Create(t.Context(), binding, metav1.CreateOptions{})
	if err := replicator.SetCell(cell.Name(), adminOf(t, cell)); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings.all) != 1 || !strings.Contains(warnings.all[0], cell.Name()) {
		t.Errorf("the warnings are %q", warnings.all)
	}
	if err := policies.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
