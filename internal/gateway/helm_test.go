package gateway_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/helmtest"
)

// helm returns a function that runs Helm.
func (w *world) helm(t *testing.T, namespace string) func(args ...string) string {
	t.Helper()
	helm := helmtest.New(t, string(w.kubectl))
	return func(args ...string) string {
		t.Helper()
		out, err := helm.Command(t.Context(), namespace, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
}

// testHelm uses Helm through the gateway: the objects and Secrets of a release are spread over all cells and the hub.
func testHelm(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "helm")
	helm := w.helm(t, namespace)
	expect := func(replicas int32, greeting string, extra bool) {
		t.Helper()
		deployment, err := w.client.AppsV1().Deployments(namespace).Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil || *deployment.Spec.Replicas != replicas {
			t.Errorf("the deployment is %v, %v; want %d replicas", deployment, err, replicas)
		}
		settings, err := w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "shop-settings", metav1.GetOptions{})
		if err != nil || settings.Data["greeting"] != greeting {
			t.Errorf("the settings are %v, %v; want %q", settings, err, greeting)
		}
		_, err = w.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "shop-extra", metav1.GetOptions{})
		if extra != (err == nil) || !extra && !apierrors.IsNotFound(err) {
			t.Errorf("the optional object: %v, want it to exist: %v", err, extra)
		}
	}
	helm("install", "shop", "testdata/chart")
	expect(2, "hello", true)
	if out := helm("list"); !strings.Contains(out, "shop-0.1.0") {
		t.Errorf("helm list printed %s", out)
	}
	helm("upgrade", "shop", "testdata/chart", "--set", "replicas=5,greeting=good morning,extra=false")
	expect(5, "good morning", false)
	helm("rollback", "shop", "1")
	expect(2, "hello", true)
	if out := helm("history", "shop"); strings.Count(out, "superseded") != 2 || strings.Count(out, "deployed") != 1 || !strings.Contains(out, "Rollback to 1") {
		t.Errorf("helm history printed %s", out)
	}
	if out := helm("get", "manifest", "shop"); !strings.Contains(out, "kind: Deployment") {
		t.Errorf("helm get manifest printed %s", out)
	}
	helm("uninstall", "shop")
	testenv.Eventually(t, "nothing of the release is left", func(ctx context.Context) (bool, error) {
		deployments, err := w.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		secrets, err := w.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		maps, err := w.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		// Helm does not delete objects of hooks.
		return len(deployments.Items) == 0 && len(secrets.Items) == 0 && len(maps.Items) == 1, nil
	})
}
