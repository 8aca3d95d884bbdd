// Package testenv provides real control planes for tests. Shared ones are started once for all packages of a `go test` run;
// dedicated ones belong to one test. Both run the same code as `cellplane up`.
package testenv

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
)

// timeout bounds every wait of a test. It is long, for loaded machines.
const timeout = 3 * time.Minute

// ControlPlane is a shared API server. Tests use their own namespaces and change only objects that they created.
type ControlPlane struct {
	Name   string
	config *rest.Config
}

// RESTConfig returns a new client configuration for an administrator.
func (c *ControlPlane) RESTConfig() *rest.Config {
	config := rest.CopyConfig(c.config)
	config.QPS = -1 // no rate limit
	return config
}

// Client returns a typed client for an administrator.
func (c *ControlPlane) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Namespace creates a namespace for a test and deletes it at its end.
func (c *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	client := c.Client(t)
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
	})
	return namespace.Name
}

// SharedAPIServer returns an API server with Cellplane's API that all packages share.
func SharedAPIServer(t testing.TB) *ControlPlane {
	t.Helper()
	return shared(t, "hub", local.Spec{})[0]
}

// SharedMembers returns three member clusters that all packages share.
func SharedMembers(t testing.TB) []*ControlPlane {
	t.Helper()
	return shared(t, "members", local.Spec{WithoutHub: true, Members: 3, Nodes: 5})
}

// StartFederation starts a federation for one test, which may kill, pause and restart any process.
func StartFederation(t testing.TB, spec local.Spec) *local.Federation {
	t.Helper()
	federation, err := local.Open(t.TempDir(), spec, local.Options{Binaries: Binaries(t), NoFsync: true, Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := federation.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		federation.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := federation.Start(ctx, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return federation
}

// Binaries returns the Kubernetes programs, and builds them if necessary.
func Binaries(t testing.TB) kubebin.Binaries {
	t.Helper()
	binaries, err := kubebin.Ensure(t.Context(), func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return binaries
}

// MetricsServer builds metrics-server if necessary, for federations that would otherwise build it in the background.
func MetricsServer(t testing.TB) {
	t.Helper()
	if _, err := kubebin.EnsureMetricsServer(t.Context(), func(string, int) {}); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits for a condition. A failure includes the last error of the condition.
func Eventually(t testing.TB, what string, condition func(ctx context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		done, err := condition(ctx)
		if last == nil || ctx.Err() == nil { // at the end, the former error says more
			last = err
		}
		return done, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

// controlPlanes returns the control planes in the kubeconfig of a federation.
func controlPlanes(t testing.TB, dir string, names []string) []*ControlPlane {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(local.KubeconfigFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	var all []*ControlPlane
	for _, name := range names {
		config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, name, nil, nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &ControlPlane{Name: name, config: config})
	}
	return all
}
