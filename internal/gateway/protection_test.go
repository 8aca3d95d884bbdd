package gateway_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
)

// protect creates a policy and waits until it is in force. refused is a dry run that the policy must refuse.
func (w *world) protect(t *testing.T, name string, spec cellplanev1alpha1.ProtectionPolicySpec, refused func(context.Context) error) {
	t.Helper()
	client, err := dynamic.NewForConfig(w.gateway.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cellplanev1alpha1.ProtectionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(cellplanev1alpha1.GroupVersion.String())
	object.SetKind("ProtectionPolicy")
	policies := client.Resource(cellplanev1alpha1.GroupVersion.WithResource("protectionpolicies"))
	if _, err := policies.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = policies.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	testenv.Eventually(t, "the policy is in force", func(ctx context.Context) (bool, error) {
		err := refused(ctx)
		return apierrors.IsForbidden(err), err
	})
}

func testDeletionProtection(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "deletion-protection")
	maps := w.client.CoreV1().ConfigMaps(namespace)
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	fill(t, w.client, namespace, 6)
	label := func(value string) {
		t.Helper()
		if _, err := maps.Patch(t.Context(), "map-001", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, names.DeletionProtectedLabel, value), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error, parts ...string) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it refused", what, err)
			return
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: refused with %q, want %q in it", what, err, part)
			}
		}
	}
	label(`"Always"`)
	refused("deleting a labelled object", maps.Delete(t.Context(), "map-001", metav1.DeleteOptions{}), names.DeletionProtectedLabel)
	refused("deleting its collection", maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), names.DeletionProtectedLabel)
	refused("deleting its namespace", w.client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}), names.DeletionProtectedLabel)
	if err := maps.DeleteCollection(t.Context(), dryRun, metav1.ListOptions{LabelSelector: "third=yes"}); err != nil {
		t.Errorf("deleting a collection without it: %v", err)
	}
	label("null")
	if err := w.client.CoreV1().Namespaces().Delete(t.Context(), namespace, dryRun); err != nil {
		t.Errorf("deleting a namespace with nothing protected: %v", err)
	}

	w.protect(t, "keep-thirds", cellplanev1alpha1.ProtectionPolicySpec{
		Deletion: &cellplanev1alpha1.DeletionProtection{},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{
			APIGroups: []string{""}, Kinds: []string{"ConfigMap"}, Namespaces: []string{namespace}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"third": "yes"}},
		}},
	}, func(ctx context.Context) error { return maps.Delete(ctx, "map-003", dryRun) })
	refused("deleting a picked object", maps.Delete(t.Context(), "map-003", metav1.DeleteOptions{}), `"keep-thirds"`, names.BreakGlassAnnotation)
	refused("deleting a collection with one", maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), `"keep-thirds"`)
	refused("deleting the namespace with one", w.client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}), `"keep-thirds"`)
	if err := maps.Delete(t.Context(), "map-002", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting another object: %v", err)
	}
	w.testBreakGlass(t, namespace)
}

// testBreakGlass overrides a policy, which needs the annotation and the right.
func (w *world) testBreakGlass(t *testing.T, namespace string) {
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"deleter": {{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
		"breaker": {{Verbs: []string{"break-glass"}, APIGroups: []string{"cellplane.io"}, Resources: []string{"protectionpolicies"}, ResourceNames: []string{"keep-thirds"}}},
	} {
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "carol"}}
		if name == "deleter" {
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "dave"})
		}
		if _, err := w.client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	carol := clientFor(t, w.gateway.ConfigFor(t, "carol")).CoreV1().ConfigMaps(namespace)
	dave := clientFor(t, w.gateway.ConfigFor(t, "dave")).CoreV1().ConfigMaps(namespace)
	testenv.Eventually(t, "dave is authorized", func(ctx context.Context) (bool, error) {
		_, err := dave.Get(ctx, "map-003", metav1.GetOptions{})
		return err == nil, err
	})
	if err := carol.Delete(t.Context(), "map-003", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the right and without the annotation: %v", err)
	}
	if _, err := dave.Patch(t.Context(), "map-003", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"the shop is closed"}}}`, names.BreakGlassAnnotation), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := dave.Delete(t.Context(), "map-003", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("with the annotation and without the right: %v", err)
	}
	testenv.Eventually(t, "carol overrides the policy", func(ctx context.Context) (bool, error) {
		err := carol.Delete(ctx, "map-003", metav1.DeleteOptions{})
		return err == nil, err
	})
}

func testScaleDownProtection(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "scale-down")
	one := newDeployment(t, w.client, namespace)
	w.protect(t, "slowly", cellplanev1alpha1.ProtectionPolicySpec{
		ScaleDown: &cellplanev1alpha1.ScaleDownProtection{
			MaxDecrease: ptr.To(intstr.FromString("20%")),
			Window:      &cellplanev1alpha1.ScaleDownWindow{Seconds: 3600, MaxDecrease: intstr.FromInt32(3)},
		},
		ResourceSelectors: []cellplanev1alpha1.ProtectedResources{{APIGroups: []string{"apps"}, Kinds: []string{"Deployment"}, Namespaces: []string{namespace}}},
	}, func(ctx context.Context) error { return scaleTo(ctx, w.client, namespace, one, 1, true) })
	for name, write := range scaleDowns(w.client, namespace) {
		t.Run(name, func(t *testing.T) {
			target := newDeployment(t, w.client, namespace)
			if err := write(t.Context(), target, 7); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "20%") {
				t.Errorf("from 10 to 7: %v, want it refused for more than 20%%", err)
			}
			if err := write(t.Context(), target, 0); !apierrors.IsForbidden(err) {
				t.Errorf("from 10 to 0: %v, want it refused", err)
			}
			if err := write(t.Context(), target, 8); err != nil {
				t.Errorf("from 10 to 8: %v", err)
			}
			if err := write(t.Context(), target, 7); err != nil {
				t.Errorf("from 8 to 7: %v", err)
			}
			if err := write(t.Context(), target, 6); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "3600 seconds") {
				t.Errorf("from 7 to 6: %v, want it refused for more than 3 in the window", err)
			}
			if err := write(t.Context(), target, 20); err != nil {
				t.Errorf("up to 20: %v", err)
			}
		})
	}
	t.Run("guessed version", func(t *testing.T) { w.testGuessedVersion(t, namespace) })
}

// testGuessedVersion scales down with resourceVersions that the object may have a moment later, while it changes all the time. Such a
// request could be written though another version was checked.
func (w *world) testGuessedVersion(t *testing.T, namespace string) {
	name := newDeployment(t, w.client, namespace)
	deployments := w.client.AppsV1().Deployments(namespace)
	patch := func(replicas int, version string) error {
		body := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"replicas":%d}}`, version, replicas)
		_, err := deployments.Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	current, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(0, current.ResourceVersion); !apierrors.IsForbidden(err) {
		t.Errorf("to 0 with the current version: %v, want it refused", err)
	}
	if err := patch(9, current.ResourceVersion); err != nil {
		t.Errorf("to 9 with the current version: %v", err)
	}
	if err := patch(10, current.ResourceVersion); !apierrors.IsConflict(err) {
		t.Errorf("with an old version: %v, want a conflict", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var annotating sync.WaitGroup
	annotating.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = deployments.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"tick":"%d"}}}`, i), metav1.PatchOptions{})
		}
	})
	for i := range 30 {
		seen, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		version, err := strconv.ParseInt(seen.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := patch(0, strconv.FormatInt(version+1+int64(i%3), 10)); !apierrors.IsConflict(err) && !apierrors.IsForbidden(err) {
			t.Fatalf("to 0 with a guessed version: %v, want a conflict or a refusal", err)
		}
	}
	cancel()
	annotating.Wait()
	if now, err := deployments.Get(t.Context(), name, metav1.GetOptions{}); err != nil || *now.Spec.Replicas != 9 {
		t.Errorf("there are %d replicas, want 9: %v", *now.Spec.Replicas, err)
	}
}

// scaleDowns are the ways to change replicas.
func scaleDowns(client kubernetes.Interface, namespace string) map[string]func(ctx context.Context, name string, replicas int32) error {
	deployments := client.AppsV1().Deployments(namespace)
	patch := func(kind types.PatchType, body string) func(context.Context, string, int32) error {
		return func(ctx context.Context, name string, replicas int32) error {
			options := metav1.PatchOptions{FieldManager: manager(kind)}
			if kind == types.ApplyPatchType {
				options.Force = ptr.To(true)
			}
			_, err := deployments.Patch(ctx, name, kind, []byte(strings.ReplaceAll(body, "N", fmt.Sprint(replicas))), options)
			return err
		}
	}
	return map[string]func(context.Context, string, int32) error{
		"scale": func(ctx context.Context, name string, replicas int32) error {
			return scaleTo(ctx, client, namespace, name, replicas, false)
		},
		"put": func(ctx context.Context, name string, replicas int32) error {
			object, err := deployments.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			object.Spec.Replicas = &replicas
			_, err = deployments.Update(ctx, object, metav1.UpdateOptions{})
			return err
		},
		"merge patch":     patch(types.MergePatchType, `{"spec":{"replicas":N}}`),
		"strategic patch": patch(types.StrategicMergePatchType, `{"spec":{"replicas":N}}`),
		"json patch":      patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":N}]`),
		"apply patch":     patch(types.ApplyPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":N}}`),
		"patch of scale": func(ctx context.Context, name string, replicas int32) error {
			_, err := deployments.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}, "scale")
			return err
		},
	}
}

func scaleTo(ctx context.Context, client kubernetes.Interface, namespace, name string, replicas int32, dryRun bool) error {
	options := metav1.UpdateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := client.AppsV1().Deployments(namespace).UpdateScale(ctx, name, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}, options)
	return err
}
