package gateway_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testControllers runs the stock namespace and garbage-collector controllers against the gateway. Owners and dependents are in different
// cells, and the namespace has objects in each cell and on the hub.
func testControllers(t *testing.T, w *world) {
	startControllers(t, w)
	namespace := gatewaytest.Namespace(t, w.Federation, "controllers")
	maps := w.client.CoreV1().ConfigMaps(namespace)
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("owned-%02d", i)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}
		cells := map[int]bool{}
		for _, name := range names {
			if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{reference}}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			cells[ownerOf(t, w, namespace, name)] = true
		}
		if len(cells) != len(w.Cells) {
			t.Fatalf("the dependents are in cells %v, want all", cells)
		}
		if err := maps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "owner and dependents are processed with policy "+string(policy), func(ctx context.Context) (bool, error) {
			left, err := maps.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			if policy != metav1.DeletePropagationOrphan {
				return len(left.Items) == 0, fmt.Errorf("%d objects are left", len(left.Items))
			}
			free := 0
			for i := range left.Items {
				if len(left.Items[i].OwnerReferences) == 0 {
					free++
				}
			}
			return free == len(names) && len(left.Items) == len(names), fmt.Errorf("%d of %d objects have no owner", free, len(left.Items))
		})
	}
	testNamespaceDeletion(t, w, namespace)
}

func testNamespaceDeletion(t *testing.T, w *world, namespace string) {
	t.Helper()
	if _, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "on-the-hub"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		got, err := w.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil {
			return false, fmt.Errorf("its status is %v", got.Status)
		}
		return apierrors.IsNotFound(err), err
	})
	for _, cell := range w.Cells {
		left, err := clientFor(t, adminOf(t, cell)).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("%s has %d objects left: %v", cell.Name(), len(left.Items), err)
		}
	}
}

// startControllers runs the stock controllers of a federation.
func startControllers(t *testing.T, w *world) {
	t.Helper()
	kubeconfig, err := w.Hub.KubeconfigFor("federation-controllers", "system:kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[w.Hub.Name()]
	cluster.Server = w.gateway.URL() + "/federation"
	cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", w.gateway.CA()
	dir := t.TempDir()
	throughGateway := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, throughGateway); err != nil {
		t.Fatal(err)
	}
	port, err := ports.Choose()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ports.Release(port) })
	serving, err := w.Hub.Serving("federation-controllers")
	if err != nil {
		t.Fatal(err)
	}
	manager := process.New(process.Spec{
		Name: "controllers", Path: testenv.Binaries(t).Path(kubebin.KubeControllerManager), LogFile: filepath.Join(dir, "log"),
		Args: []string{
			"--kubeconfig=" + throughGateway,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--controllers=namespace-controller,garbage-collector-controller",
			"--use-service-account-credentials=true",
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
			"--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
			"--leader-elect=false",
		},
	})
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
