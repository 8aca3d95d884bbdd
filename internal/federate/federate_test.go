package federate_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/federate"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/testenv"
)

// timeout bounds a run. It is long, for loaded machines.
const timeout = 2 * time.Minute

// TestRun makes a control plane a federation, killed again and again, twice at a time, and again. The control plane is hub and cell, and also stands
// for the cluster on which everything runs. Another issuer has written its certificates; the built-in one adds some.
func TestRun(t *testing.T) {
	plane := testenv.StartFederation(t, local.Spec{}).Hub
	config, err := plane.AdminConfig()
	if err != nil {
		t.Fatal(err)
	}
	const namespace, cellName = "default", "cell-a"
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	etcdCA, etcdClient, err := plane.EtcdFiles()
	if err != nil {
		t.Fatal(err)
	}
	frontProxy, err := plane.FrontProxy()
	if err != nil {
		t.Fatal(err)
	}
	write(t, cluster, "front-proxy", "", frontProxy.CertFile, frontProxy.KeyFile)
	write(t, cluster, "etcd", etcdCA, etcdClient.CertFile, etcdClient.KeyFile)
	write(t, cluster, "admin", config.CAFile, config.CertFile, config.KeyFile)
	wanted := &federate.Config{
		Namespace: namespace,
		Hub:       federate.Plane{Name: "hub", Server: plane.URL(), AdminSecret: "admin"},
		Cells: []federate.Plane{{
			Name: cellName, Server: plane.URL(), APIServers: 2, AdminSecret: "admin",
			FrontProxySecret: "front-proxy", Etcd: []string{plane.EtcdURL()}, EtcdSecret: "etcd",
		}},
		Gateway:      federate.Gateway{Server: "https://gateway.example", Publish: true, KubeconfigSecret: "kubeconfig"},
		Authorities:  []string{"ca"},
		Certificates: []federate.Certificate{{Secret: "server", Authority: "ca", CommonName: "server", Hosts: []string{"a.example"}}},
	}
	killed(t, config, *wanted)
	first := secret(t, cluster, "server")
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { run(t, cluster, wanted) })
	}
	group.Wait()
	if again := secret(t, cluster, "server"); again.ResourceVersion != first.ResourceVersion {
		t.Error("a good certificate was replaced")
	}
	authority := secret(t, cluster, "ca")
	wanted.Certificates[0].Hosts = []string{"b.example"}
	run(t, cluster, wanted)
	if again := secret(t, cluster, "server"); bytes.Equal(again.Data["tls.crt"], first.Data["tls.crt"]) {
		t.Error("a certificate for other hosts was kept")
	}
	if again := secret(t, cluster, "ca"); again.ResourceVersion != authority.ResourceVersion {
		t.Error("the authority was replaced")
	}

	hub, err := bootstrap.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	var registered cellplanev1alpha1.Cell
	if err := hub.Get(t.Context(), client.ObjectKey{Name: cellName}, &registered); err != nil {
		t.Fatal(err)
	}
	if got := registered.Spec.Endpoint; got.Server != plane.URL() || got.APIServers != 2 || !bytes.Equal(got.CABundle, read(t, plane.CAFile())) {
		t.Errorf("the Cell has the endpoint %+v", got)
	}
	for _, user := range []string{names.EngineUser("hub"), names.EngineUser(cellName)} {
		var bindings rbacv1.ClusterRoleBindingList
		if err := hub.List(t.Context(), &bindings); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(bindings.Items, func(b rbacv1.ClusterRoleBinding) bool {
			return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == user })
		}) {
			t.Errorf("%s has no rights", user)
		}
	}
	var topology cellplanev1alpha1.CellTopology
	if err := hub.Get(t.Context(), client.ObjectKey{Name: cellplanev1alpha1.CellTopologyName}, &topology); err != nil || len(topology.Spec.Cells) != 1 {
		t.Errorf("the topology is %+v (%v)", topology.Spec, err)
	}
	kubeconfig, err := clientcmd.RESTConfigFromKubeConfig(secret(t, cluster, "kubeconfig").Data[federate.KubeconfigKey])
	if err != nil || kubeconfig.Host != wanted.Gateway.Server || !bytes.Equal(kubeconfig.CAData, read(t, plane.CAFile())) {
		t.Errorf("the kubeconfig is %+v (%v)", kubeconfig, err)
	}
	if _, err := cluster.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(t.Context(), "cluster-info", metav1.GetOptions{}); err != nil {
		t.Errorf("the gateway is not published: %v", err)
	}
}

func run(t *testing.T, cluster kubernetes.Interface, config *federate.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := federate.Run(ctx, cluster, config); err != nil {
		t.Error(err)
	}
}

// killed repeats a run that ends after some writes, each time after more, until one is complete.
func killed(t *testing.T, cluster *rest.Config, config federate.Config) {
	t.Helper()
	attempts := 0
	for allowed := int64(1); ; allowed += 1 + allowed/2 {
		attempts++
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		writes := &writes{end: cancel}
		writes.left.Store(allowed)
		counted := rest.CopyConfig(cluster)
		counted.Wrap(writes.wrap)
		client, err := kubernetes.NewForConfig(counted)
		if err != nil {
			t.Fatal(err)
		}
		config.Wrap = writes.wrap
		err = federate.Run(ctx, client, &config)
		if writes.left.Load() > 0 {
			if err != nil {
				t.Fatalf("after %d attempts: %v", attempts, err)
			}
			break
		}
		if err != nil && ctx.Err() == nil {
			t.Fatalf("a run that was killed after %d writes: %v", allowed, err)
		}
	}
	if attempts < 5 {
		t.Errorf("only %d runs were killed", attempts-1)
	}
}

// writes counts the requests that write, and ends a run with the last one that is left.
type writes struct {
	left atomic.Int64
	end  context.CancelFunc
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if request.Method != http.MethodGet && w.left.Add(-1) <= 0 {
			w.end()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func write(t *testing.T, cluster kubernetes.Interface, name, ca, cert, key string) {
	t.Helper()
	data := map[string][]byte{"tls.crt": read(t, cert), "tls.key": read(t, key)}
	if ca != "" {
		data["ca.crt"] = read(t, ca)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	if _, err := cluster.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func secret(t *testing.T, cluster kubernetes.Interface, name string) *corev1.Secret {
	t.Helper()
	found, err := cluster.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
