package clustergateway_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/clustergateway"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/gatewaytest"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/testenv"
	"github.com/cellplane/cellplane/internal/testenv/kubectltest"
)

func TestMain(m *testing.M) { kubectltest.Main(m) }

// world is a federation with a gateway and two replicas of a cluster-gateway.
type world struct {
	*local.Federation
	replicas []*replica
	gateway  *gatewaytest.Gateway
	client   kubernetes.Interface // of the gateway, for an administrator
	members  []kubernetes.Interface
	kubectl  kubectltest.Kubectl
}

const (
	// staleAfter is how long the objects of an unreachable member are shown in these tests. Restarting an API server takes ten
	// seconds on a busy machine.
	staleAfter = 45 * time.Second
	// removedAfter is how long the objects of a removed member are shown. It is not reached.
	removedAfter = 3 * time.Minute
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Federation: testenv.StartFederation(t, local.Spec{Cells: 1, Members: 2, Nodes: 2})}
	gatewaytest.Namespace(t, w.Federation, names.SystemNamespace)
	hub := w.config(t, w.Hub)
	create(t, clientFor(t, hub).CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterNamespace}})
	for _, member := range w.Members {
		w.members = append(w.members, clientFor(t, w.config(t, member)))
		w.join(t, member)
	}
	for _, name := range []string{"a", "b"} {
		w.replicas = append(w.replicas, newReplica(t, name))
	}
	options := gatewaytest.Options(t, w.Federation)
	w.addViews(t, options)
	w.gateway = gatewaytest.Run(t, w.Federation, options)
	w.client, w.kubectl = w.gateway.Client(t), kubectltest.Kubectl(w.gateway.Kubeconfig(t))
	for _, r := range w.replicas {
		w.start(t, r, nil)
	}
	testenv.Eventually(t, "members are shown", func(ctx context.Context) (bool, error) {
		nodes, err := w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil && len(nodes.Items) == 4, err
	})
	return w
}

func (w *world) config(t testing.TB, plane *controlplane.ControlPlane) *rest.Config {
	t.Helper()
	config, err := plane.AdminConfig()
	check(t, err)
	config.QPS = -1
	return config
}

func (w *world) join(t testing.TB, member *controlplane.ControlPlane) {
	t.Helper()
	_, err := membership.Join(t.Context(), membership.Options{Hub: w.config(t, w.Hub), Member: w.config(t, member), Name: member.Name(), Cells: []string{}})
	check(t, err)
}

// addViews makes a gateway serve the views of the replicas.
func (w *world) addViews(t testing.TB, options *gateway.Options) {
	t.Helper()
	pair, err := w.Hub.ClientConfig("gateway", pki.Leaf{CommonName: names.GatewayUser})
	check(t, err)
	var urls []string
	for _, r := range w.replicas {
		urls = append(urls, r.url())
	}
	options.Views = gateway.ViewOptions{ClusterGateways: []string{strings.Join(urls, ",")}, CA: w.Hub.CAFile(), Cert: pair.CertFile, Key: pair.KeyFile}
}

// replica is a cluster-gateway.
type replica struct {
	name     string
	listener net.Listener
	stop     func()
}

func newReplica(t testing.TB, name string) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	return &replica{name: name, listener: listener}
}

func (r *replica) url() string { return "https://" + r.listener.Addr().String() }

// start runs a cluster-gateway until the test ends. change, which may be nil, may change its options.
func (w *world) start(t testing.TB, r *replica, change func(*clustergateway.Options)) {
	t.Helper()
	dir := t.TempDir()
	options := clustergateway.NewOptions()
	options.HubKubeconfig = filepath.Join(dir, "hub.kubeconfig")
	check(t, clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"hub": w.config(t, w.Hub)}, "hub"), options.HubKubeconfig))
	templates, err := clientcmd.LoadFromFile(string(w.kubectl))
	check(t, err)
	for _, cluster := range templates.Clusters {
		cluster.Server += "/federation"
	}
	options.TemplatesKubeconfig = filepath.Join(dir, "templates.kubeconfig")
	check(t, clientcmd.WriteToFile(*templates, options.TemplatesKubeconfig))
	options.Replica = r.name
	options.StaleAfter, options.RemovedAfter = staleAfter, removedAfter
	options.ProbeInterval, options.ProbeTimeout = 200*time.Millisecond, time.Second
	options.ClientCA.ClientCA = w.Hub.CAFile()
	options.SecureServing.Listener, options.SecureServing.BindPort = r.listener, r.listener.Addr().(*net.TCPAddr).Port
	options.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	pair, err := w.Hub.Serving("cluster-gateway")
	check(t, err)
	options.SecureServing.ServerCert.CertKey.CertFile, options.SecureServing.ServerCert.CertKey.KeyFile = pair.CertFile, pair.KeyFile
	if change != nil {
		change(options)
	}
	completed, err := options.Complete()
	check(t, err)
	check(t, completed.Validate())
	server, err := clustergateway.New(completed)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Run(ctx); err != nil {
			t.Errorf("running the cluster-gateway: %v", err)
		}
	}()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
}

// direct returns a client of a replica with the identity of a gateway.
func (w *world) direct(t testing.TB, r *replica) kubernetes.Interface {
	t.Helper()
	return clientFor(t, w.directConfig(t, r))
}

func (w *world) directConfig(t testing.TB, r *replica) *rest.Config {
	t.Helper()
	config, err := w.Hub.ClientConfig("gateway", pki.Leaf{CommonName: names.GatewayUser})
	check(t, err)
	config.Host = r.url()
	return config
}

// namespace creates a namespace everywhere and returns its name.
func (w *world) namespace(t testing.TB, name string) string {
	t.Helper()
	gatewaytest.Namespace(t, w.Federation, name)
	for _, member := range w.members {
		create(t, member.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		testenv.Eventually(t, "there is a service account for pods", func(ctx context.Context) (bool, error) {
			_, err := member.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, err
		})
	}
	return name
}

// run creates a pod in a member and returns it.
func (w *world) run(t testing.TB, member int, namespace, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	return create(t, w.members[member].CoreV1().Pods(namespace).Create, newPod(name, labels))
}

func newPod(name string, labels map[string]string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "main", Image: "simulated"}}},
	}
}

// eventuallyPod waits until the gateway shows a pod in the wanted state.
func (w *world) eventuallyPod(t testing.TB, what, namespace, name string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	testenv.Eventually(t, what, func(ctx context.Context) (_ bool, err error) {
		pod, err = w.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return wanted(nil), nil
		}
		return err == nil && wanted(pod), err
	})
	return pod
}

func in(cluster string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Annotations[names.ClusterAnnotation] == cluster }
}

func gone(pod *corev1.Pod) bool { return pod == nil }

func clientFor(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	return client
}

func create[T any](t testing.TB, do func(context.Context, T, metav1.CreateOptions) (T, error), object T) T {
	t.Helper()
	created, err := do(t.Context(), object, metav1.CreateOptions{})
	check(t, err)
	return created
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
