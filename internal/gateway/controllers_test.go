package gateway_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/process"
	"github.com/cellplane/cellplane/internal/testenv"
)

// testControllers runs the stock controllers of a federation against the gateway. Owners and dependents are in different
// cells, and the namespace has objects in each cell and on the hub.
func testControllers(t *testing.T, w *world) {
	startControllers(t, w)
	namespace := gatewaytest.Namespace(t, w.Federation, "controllers")
	testRootCA(t, w, namespace)
	maps := w.client.CoreV1().ConfigMaps(namespace)
	dependents := make([]string, 12)
	for i := range dependents {
		dependents[i] = fmt.Sprintf("owned-%02d", i)
	}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}
		cells := map[int]bool{}
		for _, name := range dependents {
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
			left, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=" + rootCAMap})
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
			return free == len(dependents) && len(left.Items) == len(dependents), fmt.Errorf("%d of %d objects have no owner", free, len(left.Items))
		})
	}
	testCollectedProtected(t, w, namespace)
	testObjectCounts(t, w)
	testServiceCounts(t, w)
	testStorageCounts(t, w)
	testNamespaceDeletion(t, w, namespace)
}

// rootCAMap is the ConfigMap with the CA of the gateway that every namespace has.
const rootCAMap = "kube-root-ca.crt"

// testRootCA waits until a namespace has the CA of the gateway, in one cell, also after somebody has changed or deleted it.
func testRootCA(t *testing.T, w *world, namespace string) {
	t.Helper()
	configMaps := w.client.CoreV1().ConfigMaps(namespace)
	published := func(when string) {
		t.Helper()
		testenv.Eventually(t, "the CA of the gateway is published "+when, func(ctx context.Context) (bool, error) {
			found, err := configMaps.Get(ctx, rootCAMap, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return len(found.Data) == 1 && found.Data["ca.crt"] == string(w.gateway.CA()), nil
		})
		all, err := configMaps.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + rootCAMap})
		if err != nil || len(all.Items) != 1 {
			t.Errorf("%s there are %d of it: %v", when, len(all.Items), err)
		}
	}
	published("in a new namespace")
	if _, err := configMaps.Patch(t.Context(), rootCAMap, types.MergePatchType, []byte(`{"data":{"ca.crt":"forged","more":"x"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	published("after a change")
	if err := configMaps.Delete(t.Context(), rootCAMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	published("after a deletion")
}

// testCollectedProtected lets protected objects be garbage: the owner of one is deleted, and another names an owner that never existed. The
// garbage collector deletes through the gateway, which refuses it while the objects are protected.
func testCollectedProtected(t *testing.T, w *world, namespace string) {
	t.Helper()
	configMaps := w.client.CoreV1().ConfigMaps(namespace)
	create := func(name string, protected bool, owner types.UID) *corev1.ConfigMap {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if protected {
			object.Labels = map[string]string{names.DeletionProtectedLabel: names.DeletionProtectedAlways}
		}
		if owner != "" {
			object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "collected-owner", UID: owner}}
		}
		created, err := configMaps.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	owner := create("collected-owner", false, "")
	create("collected-protected", true, owner.UID)
	create("collected-plain", false, owner.UID)
	create("collected-forged", true, "00000000-0000-0000-0000-000000000000")
	create("collected-forged-plain", false, "00000000-0000-0000-0000-000000000000")
	if err := configMaps.Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	gone := func(name string) {
		t.Helper()
		testenv.Eventually(t, name+" is gone", func(ctx context.Context) (bool, error) {
			_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
	}
	gone("collected-plain")
	gone("collected-forged-plain")
	for _, name := range []string{"collected-protected", "collected-forged"} {
		if object, err := configMaps.Get(t.Context(), name, metav1.GetOptions{}); err != nil || object.DeletionTimestamp != nil {
			t.Errorf("the garbage collector deleted %s, which is protected: %v", name, err)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, names.DeletionProtectedLabel)
		if _, err := configMaps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		gone(name) // it was garbage all the time
	}
}

// testObjectCounts creates more objects at once than a quota allows, in all cells and through two gateways.
func testObjectCounts(t *testing.T, w *world) {
	t.Helper()
	namespace := gatewaytest.Namespace(t, w.Federation, "counted")
	quotas := w.client.CoreV1().ResourceQuotas(namespace)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "counts"}}
	quota.Spec.Hard = corev1.ResourceList{"secrets": resource.MustParse("5"), "count/secrets": resource.MustParse("7"), "services": resource.MustParse("0"), "requests.cpu": resource.MustParse("1")}
	warnings := &collected{}
	if _, err := w.as(t, "alice", warnings).CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(warnings.all) != 1 || !strings.Contains(warnings.all[0], "requests.cpu") || !strings.Contains(warnings.all[0], "FederatedResourceQuota") {
		t.Errorf("the warnings about requests.cpu are %q", warnings.all)
	}
	used := func(want string) {
		t.Helper()
		testenv.Eventually(t, want+" secrets are counted", func(ctx context.Context) (bool, error) {
			found, err := quotas.Get(ctx, quota.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			n := found.Status.Used["secrets"]
			return n.String() == want, fmt.Errorf("the status is %v", found.Status)
		})
	}
	used("0")
	second := gatewaytest.Start(t, w.Federation, nil)
	clients := []kubernetes.Interface{w.client, second.Client(t)}
	secret := func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%d", i)}}
	}
	for _, client := range clients {
		testenv.Eventually(t, "the gateway knows the quota", func(ctx context.Context) (bool, error) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
			_, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"), err
		})
	}
	var created, refused atomic.Int32
	var running sync.WaitGroup
	for i := range 16 {
		running.Go(func() {
			_, err := clients[i%2].CoreV1().Secrets(namespace).Create(t.Context(), secret(i), metav1.CreateOptions{})
			switch {
			case err == nil:
				created.Add(1)
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: counts"):
				refused.Add(1)
			default:
				t.Errorf("creating a secret: %v", err)
			}
		})
	}
	running.Wait()
	if created.Load() != 5 || refused.Load() != 11 {
		t.Errorf("%d were created and %d refused, want 5 and 11", created.Load(), refused.Load())
	}
	used("5")
	secrets := w.client.CoreV1().Secrets(namespace)
	if _, err := secrets.Apply(t.Context(), coreapply.Secret("applied", namespace), metav1.ApplyOptions{FieldManager: "test"}); !apierrors.IsForbidden(err) {
		t.Errorf("a server-side apply passes the quota: %v", err)
	}
	existing, err := secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(existing.Items) != 5 {
		t.Fatalf("there are %d secrets: %v", len(existing.Items), err)
	}
	if _, err := secrets.Apply(t.Context(), coreapply.Secret(existing.Items[0].Name, namespace).WithLabels(map[string]string{"a": "b"}), metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Errorf("an existing object cannot be applied: %v", err)
	}
	if err := secrets.Delete(t.Context(), existing.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	used("4")
	if _, err := secrets.Create(t.Context(), secret(99), metav1.CreateOptions{}); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// testStorageCounts limits the storage of claims.
func testStorageCounts(t *testing.T, w *world) {
	t.Helper()
	namespace := gatewaytest.Namespace(t, w.Federation, "counted-storage")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "storage"}}
	quota.Spec.Hard = corev1.ResourceList{"requests.storage": resource.MustParse("1Gi")}
	if _, err := w.client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := func(ctx context.Context, name, size string, dryRun ...string) error {
		_, err := w.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			},
		}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	exceeds := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: storage, requested: requests.storage=")
	}
	testenv.Eventually(t, "the gateway knows the quota", func(ctx context.Context) (bool, error) {
		err := claim(ctx, "none", "2Gi", metav1.DryRunAll)
		return exceeds(err), err
	})
	if err := claim(t.Context(), "fits", "512Mi"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the claim is counted", func(ctx context.Context) (bool, error) {
		found, err := w.client.CoreV1().ResourceQuotas(namespace).Get(ctx, quota.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		used := found.Status.Used["requests.storage"]
		return used.String() == "512Mi", fmt.Errorf("the status is %v", found.Status)
	})
	if err := claim(t.Context(), "exceeds", "768Mi"); !exceeds(err) {
		t.Errorf("creating a claim: %v, want that it exceeds the quota", err)
	}
}

// testServiceCounts limits what Services use: by their creation, and by changes of their type.
func testServiceCounts(t *testing.T, w *world) {
	t.Helper()
	namespace := gatewaytest.Namespace(t, w.Federation, "counted-services")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "parts"}}
	quota.Spec.Hard = corev1.ResourceList{"services": resource.MustParse("9"), "services.nodeports": resource.MustParse("1"), "services.loadbalancers": resource.MustParse("1")}
	warnings := &collected{}
	if _, err := w.as(t, "alice", warnings).CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil || len(warnings.all) > 0 {
		t.Fatalf("creating the quota: %v, warnings %q", err, warnings.all)
	}
	services := w.client.CoreV1().Services(namespace)
	create := func(ctx context.Context, name string, kind corev1.ServiceType, ports int32, dryRun ...string) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: kind}}
		for i := range ports {
			service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("port-", i), Port: 80 + i})
		}
		_, err := services.Create(ctx, service, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	exceeds := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: parts, requested: services.nodeports=")
	}
	testenv.Eventually(t, "the gateway knows the quota", func(ctx context.Context) (bool, error) {
		err := create(ctx, "none", corev1.ServiceTypeNodePort, 2, metav1.DryRunAll)
		return exceeds(err), err
	})
	for name, kind := range map[string]corev1.ServiceType{"plain": corev1.ServiceTypeClusterIP, "node-port": corev1.ServiceTypeNodePort} {
		if err := create(t.Context(), name, kind, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := create(t.Context(), "load-balancer", corev1.ServiceTypeLoadBalancer, 1); !exceeds(err) {
		t.Errorf("creating a load balancer: %v, want that it exceeds the quota", err)
	}
	patch := func(name, body string) error {
		_, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	if err := patch("plain", `{"spec":{"type":"NodePort"}}`); !exceeds(err) {
		t.Errorf("making a Service a NodePort: %v, want that it exceeds the quota", err)
	}
	if err := patch("node-port", `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("changing a Service that is counted: %v", err)
	}
	if err := patch("plain", `{"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false}}`); err != nil {
		t.Errorf("making a Service a load balancer without node ports: %v", err)
	}
	testenv.Eventually(t, "the Services are counted", func(ctx context.Context) (bool, error) {
		found, err := w.client.CoreV1().ResourceQuotas(namespace).Get(ctx, quota.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		all, ports, balancers := found.Status.Used["services"], found.Status.Used["services.nodeports"], found.Status.Used["services.loadbalancers"]
		return all.Value() == 2 && ports.Value() == 1 && balancers.Value() == 1, fmt.Errorf("the status is %v", found.Status)
	})
}

func testNamespaceDeletion(t *testing.T, w *world, namespace string) {
	t.Helper()
	bindings := testCollectedOnHub(t, w, namespace)
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
	if left, err := bindings.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("the hub has bindings left: %v, %v", left, err)
	}
	for _, cell := range w.Cells {
		// The hub manager would end the namespace in the cell, and the CA with it.
		left, err := clientFor(t, adminOf(t, cell)).CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=" + rootCAMap})
		if err != nil || len(left.Items) != 0 {
			t.Errorf("%s has %d objects left: %v", cell.Name(), len(left.Items), err)
		}
	}
}

// testCollectedOnHub deletes a template that lives on the hub: its binding there is collected. It leaves another binding, and returns those of
// the namespace on the hub.
func testCollectedOnHub(t *testing.T, w *world, namespace string) dynamic.ResourceInterface {
	t.Helper()
	role, err := w.client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
	must(t, err)
	bindings := dynamicFor(t, adminOf(t, w.Hub)).Resource(bindingsGVR).Namespace(namespace)
	for name, owners := range map[string][]metav1.OwnerReference{
		"bound-role": {{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: role.Name, UID: role.UID}}, "left-role": nil,
	} {
		binding := (&hubKinds{namespace: namespace}).binding(name, "rbac.authorization.k8s.io/v1", "Role", strings.TrimSuffix(name, "-role"))
		binding.SetOwnerReferences(owners)
		_, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{})
		must(t, err)
	}
	must(t, w.client.RbacV1().Roles(namespace).Delete(t.Context(), role.Name, metav1.DeleteOptions{}))
	testenv.Eventually(t, "the binding of the deleted Role is collected", func(ctx context.Context) (bool, error) {
		_, err := bindings.Get(ctx, "bound-role", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	if _, err := bindings.Get(t.Context(), "left-role", metav1.GetOptions{}); err != nil {
		t.Errorf("the binding without an owner: %v", err)
	}
	return bindings
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
	rootCA := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(rootCA, w.gateway.CA(), 0o600); err != nil {
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
		Args: append(controlplane.FederationControllerFlags(),
			"--kubeconfig="+throughGateway,
			"--authentication-kubeconfig="+kubeconfig,
			"--authorization-kubeconfig="+kubeconfig,
			"--root-ca-file="+rootCA,
			"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
			"--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile,
		),
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
