// Package gatewaytest runs gateways in tests, in front of real control planes.
package gatewaytest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway"
	"github.com/cellplane/cellplane/internal/gateway/topology"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/testenv"
)

// Gateway is a gateway that a test has started.
type Gateway struct {
	federation *local.Federation
	server     *gateway.Server
	options    *gateway.Options
	ca         []byte
	stop       context.CancelFunc
	done       chan struct{}
}

// Start runs a gateway in front of a federation until the test ends, with a static topology of all cells. change, which may be nil, can
// modify the options.
func Start(t testing.TB, federation *local.Federation, change func(*gateway.Options)) *Gateway {
	t.Helper()
	options := Options(t, federation)
	if change != nil {
		change(options)
	}
	return Run(t, federation, options)
}

// Options returns options for a gateway in front of a federation.
func Options(t testing.TB, federation *local.Federation) *gateway.Options {
	t.Helper()
	hub := federation.Hub
	config, err := hub.AdminConfig()
	check(t, err)
	proxy, err := hub.FrontProxy()
	check(t, err)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "hub.kubeconfig")
	check(t, clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"hub": config}, "hub"), kubeconfig))

	options := gateway.NewOptions()
	options.HubKubeconfig = kubeconfig
	options.HubProxyCert, options.HubProxyKey = proxy.CertFile, proxy.KeyFile
	options.Source = Topology(t, federation)
	options.ClientCA.CAContentProvider, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", hub.CAFile())
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	options.SecureServing.Listener = listener
	options.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	options.SecureServing.ServerCert.CertDirectory = ""
	options.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	return options
}

// Topology returns the cells of a federation, and gives gateways their rights there.
func Topology(t testing.TB, federation *local.Federation) topology.Static {
	t.Helper()
	static := topology.Static{Epoch: 1}
	for _, cell := range federation.Cells {
		config, err := cell.AdminConfig()
		check(t, err)
		client, err := kubernetes.NewForConfig(config)
		check(t, err)
		check(t, fleet.GrantGateways(t.Context(), client))
		proxy, err := cell.FrontProxy()
		check(t, err)
		endpoint, err := topology.EndpointFromFiles(cell.URL(), cell.CAFile(), proxy.CertFile, proxy.KeyFile)
		check(t, err)
		static.Cells = append(static.Cells, topology.Cell{Name: cell.Name(), Weight: 1, Endpoint: endpoint})
	}
	return static
}

// Run runs a gateway until the test ends and waits until it is ready.
func Run(t testing.TB, federation *local.Federation, options *gateway.Options) *Gateway {
	t.Helper()
	g := Launch(t, federation, options)
	g.waitReady(t)
	return g
}

// Launch runs a gateway until the test ends and does not wait until it is ready.
func Launch(t testing.TB, federation *local.Federation, options *gateway.Options) *Gateway {
	t.Helper()
	g := &Gateway{federation: federation, options: options, done: make(chan struct{})}
	completed, err := options.Complete()
	check(t, err)
	check(t, completed.Validate())
	config, err := gateway.NewConfig(completed)
	check(t, err)
	g.server, err = config.NewServer()
	check(t, err)
	g.ca, _ = options.SecureServing.ServerCert.GeneratedCert.CurrentCertKeyContent()
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	go func() {
		defer close(g.done)
		if err := g.server.Run(ctx); err != nil {
			t.Errorf("running the gateway: %v", err)
		}
	}()
	t.Cleanup(g.Stop)
	return g
}

// Stop ends the gateway.
func (g *Gateway) Stop() {
	g.stop()
	<-g.done
}

func (g *Gateway) waitReady(t testing.TB) {
	t.Helper()
	client := g.Client(t)
	testenv.Eventually(t, "the gateway is ready", func(ctx context.Context) (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, err
	})
}

// URL returns the address of the gateway.
func (g *Gateway) URL() string { return "https://" + g.server.Addr().String() }

// CA returns the CA certificate of the gateway in PEM.
func (g *Gateway) CA() []byte { return g.ca }

// Config returns a client configuration for an administrator.
func (g *Gateway) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, err := g.federation.Hub.AdminConfig()
	check(t, err)
	return g.toGateway(config)
}

// ConfigFor returns a client configuration for a user.
func (g *Gateway) ConfigFor(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	config, err := g.federation.Hub.ClientConfig("user-"+name, pki.Leaf{CommonName: name, Organizations: groups})
	check(t, err)
	return g.toGateway(config)
}

func (g *Gateway) toGateway(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = g.URL()
	config.CAFile, config.CAData = "", g.ca
	config.QPS = -1
	return config
}

// Client returns a client for an administrator.
func (g *Gateway) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	return clientFor(t, g.Config(t))
}

// Kubeconfig writes a kubeconfig for an administrator and returns its path.
func (g *Gateway) Kubeconfig(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	check(t, os.WriteFile(ca, g.ca, 0o600))
	config := g.Config(t)
	config.CAFile, config.CAData = ca, nil
	path := filepath.Join(dir, "kubeconfig")
	check(t, clientcmd.WriteToFile(*controlplane.Kubeconfig(map[string]*rest.Config{"cellplane": config}, "cellplane"), path))
	return path
}

// Namespace creates a namespace on the hub and in the cells, in place of the hub manager, and returns its name.
func Namespace(t testing.TB, federation *local.Federation, name string) string {
	t.Helper()
	for _, plane := range append([]*controlplane.ControlPlane{federation.Hub}, federation.Cells...) {
		config, err := plane.AdminConfig()
		check(t, err)
		_, err = clientFor(t, config).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		check(t, err)
	}
	return name
}

func clientFor(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	return client
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
