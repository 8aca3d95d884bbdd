package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
	"github.com/cellplane/cellplane/internal/testenv/realnode"
)

// realWorkload is a Deployment for the cluster with the real node.
const realWorkload = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: real, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: real}]
  placement: {clusterAffinity: {clusterNames: [real]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: real, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: real}}
  template:
    metadata: {labels: {app: real}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "` + realnode.Image + `", imagePullPolicy: Never, readinessProbe: {periodSeconds: 1, httpGet: {port: 8080, path: /ready}}}]
`

// testStreams joins the cluster of the node to its own federation, and uses a real pod through the gateways.
func (f *federation) testStreams(t *testing.T) {
	before := f.federationObjects(t)
	f.join(t, "real", string(f.meta))
	defer func() {
		if out, err := cellplane(t, "unjoin", "real", "--kubeconfig="+string(f.kubeconfig), "--member-kubeconfig="+string(f.meta)); err != nil {
			t.Errorf("unjoining: %v: %s", err, out)
			return
		}
		testenv.Eventually(t, "nothing is left of the membership", func(context.Context) (bool, error) {
			after := f.federationObjects(t)
			return slices.Equal(after, before), fmt.Errorf("before: %v, after: %v", before, after)
		})
	}()
	if out, err := f.kubeconfig.Try(t.Context(), t, realWorkload, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pod := ""
	testenv.Eventually(t, "the pod is ready", func(ctx context.Context) (bool, error) {
		pods, err := f.client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=real"})
		if err != nil {
			return false, err
		}
		if len(pods.Items) != 1 {
			return false, fmt.Errorf("there are %d pods", len(pods.Items))
		}
		pod = pods.Items[0].Name
		return isReady(&pods.Items[0]), fmt.Errorf("%s", state(&pods.Items[0]))
	})
	k := f.kubeconfig
	t.Run("exec", func(t *testing.T) {
		if got := k.Must(t, "exec", "-n", "shop", pod, "--", "hostname"); got != pod+"\n" {
			t.Errorf("the host is called %q", got)
		}
		if got, err := k.Try(t.Context(), t, "typed", "exec", "-i", "-n", "shop", pod, "--", "cat"); err != nil || got != "typed" {
			t.Errorf("the input returns as %q: %v", got, err)
		}
		if out, err := k.Try(t.Context(), t, "", "exec", "-n", "shop", pod, "--", "cat", "/nothing"); err == nil || !strings.Contains(out, "no such file") {
			t.Errorf("a command that fails: %v: %s", err, out)
		}
	})
	t.Run("logs", func(t *testing.T) {
		if got := k.Must(t, "logs", "-n", "shop", "deployment/real"); !strings.Contains(got, "serving\n") {
			t.Errorf("the log is %q", got)
		}
	})
	t.Run("logs --follow and port-forward", func(t *testing.T) { f.testForward(t, pod) })
	t.Run("cp", func(t *testing.T) {
		dir := t.TempDir()
		sent, received := filepath.Join(dir, "sent"), filepath.Join(dir, "received")
		content := strings.Repeat("0123456789abcdef", 1<<16)
		if err := os.WriteFile(sent, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k.Must(t, "cp", sent, "shop/"+pod+":/tmp/copy")
		k.Must(t, "cp", "shop/"+pod+":/tmp/copy", received)
		if got, err := os.ReadFile(received); err != nil || string(got) != content {
			t.Errorf("%d bytes return, want %d: %v", len(got), len(content), err)
		}
	})
}

// federationObjects returns the objects of the node's cluster that joining it changes. The namespace of the workload is none of them.
func (f *federation) federationObjects(t *testing.T) []string {
	t.Helper()
	lists := strings.Fields(f.meta.Must(t, "get", "namespaces,clusterroles,clusterrolebindings", "-o", "name"))
	accounts := f.meta.Must(t, "get", "serviceaccounts,roles,rolebindings", "--all-namespaces", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\n"}{end}`)
	all := slices.DeleteFunc(append(lists, strings.Fields(accounts)...), func(name string) bool {
		return name == "namespace/shop" || strings.Contains(name, "/shop/")
	})
	slices.Sort(all)
	return all
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 8080`)

// testForward sends requests through a forwarded port, and sees them in the log that it follows.
func (f *federation) testForward(t *testing.T, pod string) {
	ctx, cancel := context.WithCancel(t.Context())
	forwarded, log := &kubectltest.Output{}, &kubectltest.Output{}
	ended := make(chan struct{}, 2)
	for out, args := range map[*kubectltest.Output][]string{
		forwarded: {"port-forward", "-n", "shop", "pod/" + pod, ":8080"},
		log:       {"logs", "-n", "shop", pod, "--follow"},
	} {
		go func() {
			_ = f.kubeconfig.To(ctx, t, out, "", args...)
			ended <- struct{}{}
		}()
	}
	defer func() { cancel(); <-ended; <-ended }()
	address := ""
	testenv.Eventually(t, "the port is forwarded", func(context.Context) (bool, error) {
		found := forwarding.FindStringSubmatch(forwarded.String())
		if found == nil {
			return false, fmt.Errorf("kubectl says %s", forwarded)
		}
		address = found[1]
		return true, nil
	})
	client := &http.Client{Timeout: 10 * time.Second}
	for i := range 20 {
		testenv.Eventually(t, "a request is answered", func(ctx context.Context) (bool, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/forwarded-%d", address, i), nil)
			if err != nil {
				return false, err
			}
			response, err := client.Do(request)
			if err != nil {
				return false, err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return false, err
			}
			return string(body) == "hello from "+pod+"\n", fmt.Errorf("the answer is %q", body)
		})
	}
	testenv.Eventually(t, "the requests are in the log", func(context.Context) (bool, error) {
		return strings.Contains(log.String(), "request /forwarded-19\n"), fmt.Errorf("the log is %s", log)
	})
}
