package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/userpolicy"
)

// testPolicyParameters binds a validating and a mutating policy to parameters. A change of the parameters takes effect in all cells with the answer
// to the write, unless that warns of a slow cell, and on the hub a little later. Without parameters nothing is refused, above all no component.
func testPolicyParameters(t *testing.T, w *world) {
	namespace, alice := w.namespace(t, "parametrised"), w.as(t, "alice", nil)
	warnings := &collected{}
	config := w.gateway.Config(t)
	config.WarningHandler = warnings
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	parameters := objects.Resource(userpolicy.Parameters)
	limits := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cellplane.io/v1alpha1", "kind": userpolicy.ParameterKind, "metadata": map[string]any{"name": "limits"},
		"data": map[string]any{"closed": "yes", "colour": "red"},
	}}
	if limits, err = parameters.Create(t.Context(), limits, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change := func(data map[string]any) {
		t.Helper()
		limits.Object["data"] = data
		if limits, err = parameters.Update(t.Context(), limits, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	closed := func() error {
		created, refused := createEverywhere(t, alice, namespace)
		if len(created) != 0 || !strings.Contains(refused[0].Error(), "closed with") {
			return fmt.Errorf("%d objects pass: %w", len(created), errors.Join(refused...))
		}
		return nil
	}
	open := func(colour string) error {
		created, refused := createEverywhere(t, alice, namespace)
		for _, object := range created {
			if object.Labels["colour"] != colour {
				return fmt.Errorf("%s has the labels %v", object.Name, object.Labels)
			}
		}
		return errors.Join(refused...)
	}
	components := func(when string) {
		t.Helper()
		for _, plane := range append(slices.Clone(w.Cells), w.Hub) {
			if _, refused := createEverywhere(t, clientFor(t, adminOf(t, plane)), namespace); len(refused) != 0 {
				t.Errorf("%s the policies block components in %s: %v", when, plane.Name(), refused[0])
			}
		}
	}

	deletePolicies := bindParametrised(t, clientFor(t, config), namespace, limits.GetName())
	warnings.enforced(t, "a parameter refuses objects", closed)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	testenv.Eventually(t, "the policies have their parameters on the hub", func(ctx context.Context) (bool, error) {
		_, err := alice.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "closed with red"), err
	})
	change(map[string]any{"closed": "no", "colour": "green"})
	warnings.enforced(t, "a changed parameter allows and labels objects", func() error { return open("green") })
	change(map[string]any{"closed": "yes", "colour": "green"})
	warnings.enforced(t, "a parameter that is changed back refuses objects", closed)
	components("with parameters")
	if err := parameters.Delete(t.Context(), limits.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	warnings.enforced(t, "a deleted parameter has no effect", func() error { return open("") })
	components("without parameters")
	deletePolicies()
	warnings.enforced(t, "the parameters are gone", func() error {
		for _, cell := range w.Cells {
			left, err := dynamicFor(t, adminOf(t, cell)).Resource(userpolicy.Parameters).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(left.Items) != 0 {
				return fmt.Errorf("%s still has %v: %w", cell.Name(), left, err)
			}
		}
		return nil
	})
}

// bindParametrised creates policies for a namespace with a parameter: one refuses objects if it says so, the other labels them. It returns a
// function that deletes them.
func bindParametrised(t *testing.T, client kubernetes.Interface, namespace, parameter string) func() {
	t.Helper()
	kind := &admissionregistrationv1.ParamKind{APIVersion: "cellplane.io/v1alpha1", Kind: userpolicy.ParameterKind}
	ref := &admissionregistrationv1.ParamRef{Name: parameter, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction)}
	match := &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: ruleFor("configmaps", "serviceaccounts")}},
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	admission, options := client.AdmissionregistrationV1(), metav1.CreateOptions{}
	name := metav1.ObjectMeta{Name: "parametrised"}
	must(admission.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: kind, MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"colour": params.data.colour}}}`},
		}},
	}}, options))
	must(admission.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ParamRef: ref,
	}}, options))
	must(admission.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: kind, MatchConstraints: match,
		Validations: []admissionregistrationv1.Validation{{Expression: "params.data.closed != 'yes'", MessageExpression: "'closed with ' + object.metadata.labels.colour"}},
	}}, options))
	must(admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name.Name, ParamRef: ref, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}, options))
	return func() {
		must(nil, admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
		must(nil, admission.ValidatingAdmissionPolicies().Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
		must(nil, admission.MutatingAdmissionPolicyBindings().Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
		must(nil, admission.MutatingAdmissionPolicies().Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
	}
}
