package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 30 * time.Second
)

// errNotYet means that the API server does not apply a rule yet.
var errNotYet = errors.New("the API server does not apply it yet")

// waitUntilApplied checks by dry-run requests that the API server applies the rules. It does so with a delay,
// during which objects could bypass them.
func waitUntilApplied(ctx context.Context, client dynamic.Interface, options Options) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, probeInterval, probeTimeout, true, func(ctx context.Context) (bool, error) {
		for _, probe := range []func(context.Context, dynamic.Interface) error{probeDefaults, probeRefusal, probeTaints(options)} {
			last = probe(ctx, client)
			if last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until admission policies are applied: %w", errors.Join(err, last))
	}
	return nil
}

// probeDefaults sends a policy without optional fields.
func probeDefaults(ctx context.Context, client dynamic.Interface) error {
	policy, err := dryRun(ctx, client, "propagationpolicies", metav1.NamespaceDefault, map[string]any{
		"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}},
		"placement":         map[string]any{"replicaScheduling": map[string]any{"replicaSchedulingType": "Divided"}},
	})
	if err != nil {
		return err
	}
	selectors, _, _ := unstructured.NestedSlice(policy.Object, "spec", "resourceSelectors")
	preference, _, _ := unstructured.NestedString(policy.Object, "spec", "placement", "replicaScheduling", "replicaDivisionPreference")
	filledIn := len(selectors) == 1 && selectors[0].(map[string]any)["namespace"] == metav1.NamespaceDefault
	if !filledIn || preference != string(policyv1alpha1.ReplicaDivisionPreferenceWeighted) || len(policy.GetFinalizers()) == 0 {
		return errNotYet
	}
	return nil
}

// probeRefusal sends a policy that selects another namespace.
func probeRefusal(ctx context.Context, client dynamic.Interface) error {
	_, err := dryRun(ctx, client, "propagationpolicies", metav1.NamespaceDefault, map[string]any{
		"resourceSelectors": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": metav1.NamespaceSystem}},
	})
	return wantRefusal(err, true)
}

// probeTaints sends a policy with a NoExecute taint.
func probeTaints(options Options) func(context.Context, dynamic.Interface) error {
	return func(ctx context.Context, client dynamic.Interface) error {
		_, err := dryRun(ctx, client, "clustertaintpolicies", "", map[string]any{
			"taints": []any{map[string]any{"key": "cellplane.io/probe", "effect": "NoExecute"}},
		})
		return wantRefusal(err, !options.AllowNoExecuteTaintPolicy)
	}
}

func wantRefusal(err error, wanted bool) error {
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	if refused != wanted && (refused || err == nil) {
		return errNotYet
	}
	if refused {
		return nil
	}
	return err
}

// probeKinds are the kinds that are probed, by resource.
var probeKinds = map[string]string{"propagationpolicies": "PropagationPolicy", "clustertaintpolicies": "ClusterTaintPolicy"}

// dryRun sends an object without storing it.
func dryRun(ctx context.Context, client dynamic.Interface, resource, namespace string, spec map[string]any) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policyv1alpha1.GroupVersion.String(),
		"kind":       probeKinds[resource],
		"metadata":   map[string]any{"generateName": "cellplane-probe-"},
		"spec":       spec,
	}}
	gvr := policyv1alpha1.GroupVersion.WithResource(resource)
	return client.Resource(gvr).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}
