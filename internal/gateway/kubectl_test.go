package gateway_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

func TestMain(m *testing.M) { kubectltest.Main(m) }

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: %s
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
`

func testKubectl(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "kubectl")
	manifest := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, deployment, "web"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(args ...string) []string { return append(args, "-n", namespace) }
	expect := func(want string, args ...string) {
		t.Helper()
		if out := w.kubectl.Must(t, args...); !strings.Contains(out, want) {
			t.Errorf("kubectl %s: printed %q, want %q in it", strings.Join(args, " "), out, want)
		}
	}
	expect("created", in("apply", "-f", manifest)...)
	expect("unchanged", in("apply", "-f", manifest)...)
	expect("serverside-applied", in("apply", "--server-side", "--force-conflicts", "-f", manifest)...)
	expect("web", in("get", "deployment", "web")...)
	expect("app=web", in("get", "deployment", "web", "--show-labels")...)
	expect("web", in("get", "deploy", "-l", "app=web")...)
	expect("web", in("get", "deploy", "--field-selector", "metadata.name=web")...)
	expect("kind: Deployment", in("get", "deploy", "web", "-o", "yaml")...)
	expect("No resources found", in("get", "deploy", "-l", "app=other")...)
	expect("Selector:", in("describe", "deployment", "web")...)
	expect("patched", in("patch", "deployment", "web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`)...)
	expect("patched", in("patch", "deployment", "web", "--type=merge", "-p", `{"metadata":{"annotations":{"a":"b"}}}`)...)
	expect("patched", in("patch", "deployment", "web", "--type=json", "-p", `[{"op":"replace","path":"/metadata/annotations/a","value":"c"}]`)...)
	expect("scaled", in("scale", "deployment", "web", "--replicas=5")...)
	expect("5", in("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")...)
	expect("labeled", in("label", "deployment", "web", "tier=front")...)
	expect("annotated", in("annotate", "deployment", "web", "note=hello")...)
	expect("image updated", in("set", "image", "deployment/web", "web=web:3")...)
	expect("restarted", in("rollout", "restart", "deployment/web")...)
	expect("KIND:", "explain", "deployment.spec")
	expect("deployments", "api-resources")
	expect("apps/v1", "api-versions")
	expect("yes", in("auth", "can-i", "create", "deployments")...)
	expect("cellplane-admin", "auth", "whoami")
	expect("gitVersion", "get", "--raw", "/version")
	expect("kubectl", "get", "namespaces")
	expect("deployment.apps/web", in("get", "all")...)

	if out, err := w.kubectl.Try(t.Context(), t, strings.Replace(fmt.Sprintf(deployment, "web"), "replicas: 2", "replicas: 3", 1), in("diff", "-f", "-")...); err == nil || !strings.Contains(out, "replicas: 3") {
		t.Errorf("kubectl diff: %v: %s", err, out)
	}
	t.Setenv("KUBE_EDITOR", "sed -i s/hello/edited/")
	expect("edited", in("edit", "deployment", "web")...)
	expect("edited", in("get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.note}")...)

	w.finishRollout(t, namespace, "web")
	expect("successfully rolled out", in("rollout", "status", "deployment/web", "--timeout=60s")...)
	expect("condition met", in("wait", "--for=condition=Available", "deployment/web", "--timeout=60s")...)
	expect("deleted", in("delete", "deployment", "web", "--timeout=60s")...)
	if out, err := w.kubectl.Try(t.Context(), t, "", in("get", "deployment", "web")...); err == nil || !strings.Contains(out, "NotFound") {
		t.Errorf("getting a deleted object: %v: %s", err, out)
	}
}

// finishRollout writes the status that the deployment controller of a cluster would write.
func (w *world) finishRollout(t *testing.T, namespace, name string) {
	t.Helper()
	deployments := w.client.AppsV1().Deployments(namespace)
	object, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := *object.Spec.Replicas
	object.Status = appsv1.DeploymentStatus{
		ObservedGeneration: object.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: "True"}},
	}
	if _, err := deployments.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testKubectlWatch checks that a watch after a paged list shows no object twice.
func testKubectlWatch(t *testing.T, w *world) {
	namespace := gatewaytest.Namespace(t, w.Federation, "kubectl-watch")
	fill(t, w.client, namespace, 7)
	w.kubectl.Must(t, "label", "configmaps", "-n", namespace, "-l", "third", "watched=yes")
	for _, test := range []struct {
		last string // the last listed object
		args []string
	}{
		{"map-006", []string{"get", "configmaps", "-w", "-n", namespace}},
		{"map-006", []string{"get", "configmaps", "--chunk-size=2", "-w", "-n", namespace}},
		{"map-006", []string{"get", "configmaps", "-A", "--chunk-size=2", "-w", "-l", "watched", "--output-watch-events"}},
		{"map-003", []string{"get", "configmap", "map-003", "-w", "-n", namespace}},
	} {
		args := test.args
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out := &kubectltest.Output{}
		done := make(chan error, 1)
		go func() { done <- w.kubectl.To(ctx, t, out, "", args...) }()
		testenv.Eventually(t, "kubectl has listed", func(context.Context) (bool, error) {
			return strings.Contains(out.String(), test.last), fmt.Errorf("%q", out.String())
		})
		before := out.String()
		value := strings.Join(args, "-")
		testenv.Eventually(t, "kubectl shows a change", func(context.Context) (bool, error) {
			// The watch may begin after the change, so change it repeatedly.
			value += "."
			w.kubectl.Must(t, "label", "configmap", "map-003", "-n", namespace, fmt.Sprintf("changed=x%d", len(value)), "--overwrite")
			return len(out.String()) > len(before), nil
		})
		after := strings.TrimPrefix(out.String(), before)
		if strings.Contains(after, "map-000") {
			t.Errorf("kubectl %s shows an object twice: %q after %q", strings.Join(args, " "), after, before)
		}
		cancel()
		<-done
	}
}
