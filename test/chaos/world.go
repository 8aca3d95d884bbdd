package chaos

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/process"
)

// namespace contains the objects of clients.
const namespace = "chaos"

// world is a federation with three gateways and two hub managers.
type world struct {
	federation *local.Federation
	parts      *extendedParts
	hub        client.Client
	config     *rest.Config // of an administrator, without a host
}

// extendedParts are the parts of a local federation, and more replicas of some.
type extendedParts struct {
	local.Parts
	federation *local.Federation
	program    string
	extra      []*process.Process
	addresses  []string // of gateways
}

// withReplicas is parts.Of with more replicas.
func withReplicas(program string, into **extendedParts) func(*local.Federation) (local.Parts, error) {
	return func(f *local.Federation) (local.Parts, error) {
		inner, err := parts.Of(program)(f)
		if err != nil {
			return nil, err
		}
		c := &extendedParts{Parts: inner, federation: f, program: program, addresses: []string{inner.Contexts()[parts.GatewayContext].Host}}
		for _, name := range []string{"gateway-2", "steady-gateway"} {
			if err := c.addGateway(name); err != nil {
				return nil, err
			}
		}
		*into = c
		return c, c.addHubManager("hub-manager-2")
	}
}

func (c *extendedParts) addHubManager(name string) error {
	kubeconfig, err := c.federation.Hub.KubeconfigFor("hub-manager", "system:cellplane:hub-manager")
	if err != nil {
		return err
	}
	address, err := c.federation.Address(name)
	if err != nil {
		return err
	}
	c.add(name, []string{"hub-manager", "--kubeconfig=" + kubeconfig, "--bind-address=" + address}, process.HTTPCheck("http://"+address+"/healthz", "", "", ""))
	return nil
}

func (c *extendedParts) addGateway(name string) error {
	hub := c.federation.Hub
	kubeconfig, err := hub.KubeconfigFor("gateway", "system:cellplane:gateway")
	if err != nil {
		return err
	}
	proxy, err := hub.FrontProxy()
	if err != nil {
		return err
	}
	serving, err := hub.Serving("gateway")
	if err != nil {
		return err
	}
	address, err := c.federation.Address(name)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	c.addresses = append(c.addresses, "https://"+address)
	c.add(name, []string{
		"gateway", "--hub-kubeconfig=" + kubeconfig, "--hub-proxy-client-cert-file=" + proxy.CertFile, "--hub-proxy-client-key-file=" + proxy.KeyFile,
		"--client-ca-file=" + hub.CAFile(), "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
		"--bind-address=" + host, "--secure-port=" + port, "--state-dir=" + filepath.Join(c.federation.Dir(), name, "state"),
	}, process.HTTPCheck("https://"+address+"/readyz", hub.CAFile(), "", ""))
	return nil
}

func (c *extendedParts) add(name string, args []string, check func(context.Context) error) {
	c.extra = append(c.extra, process.New(process.Spec{
		Name: name, Path: c.program, Args: args, Check: check, LogFile: filepath.Join(c.federation.Dir(), name, "logs", name+".log"),
	}))
}

// Processes implements local.Parts.
func (c *extendedParts) Processes() []*process.Process {
	return append(c.Parts.Processes(), c.extra...)
}

// Start implements local.Parts.
func (c *extendedParts) Start(ctx context.Context) error {
	if err := c.Parts.Start(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range c.extra {
		group.Go(func() error {
			if err := p.Start(ctx); err != nil {
				return err
			}
			return p.WaitReady(ctx)
		})
	}
	return group.Wait()
}

// newWorld starts a federation of two cells, and a third cell that is not in the topology.
func newWorld(ctx context.Context, dir, program string, binaries kubebin.Binaries) (*world, error) {
	w := &world{}
	federation, err := local.Open(dir, local.Spec{Cells: 2}, local.Options{Binaries: binaries, NoFsync: true, Parts: withReplicas(program, &w.parts)})
	if err != nil {
		return nil, err
	}
	w.federation = federation
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return w, err
	}
	if err := federation.AddCell(ctx, "cell-c"); err != nil {
		return w, err
	}
	if w.config, err = federation.Hub.AdminConfig(); err != nil {
		return w, err
	}
	w.config.QPS = -1
	known, err := scheme()
	if err != nil {
		return w, err
	}
	if w.hub, err = client.New(w.config, client.Options{Scheme: known}); err != nil {
		return w, err
	}
	direct, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		return w, err
	}
	_, err = direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return w, err
}

// close stops the federation.
func (w *world) close(ctx context.Context) error {
	if w == nil || w.federation == nil {
		return nil
	}
	err := w.federation.Stop(ctx)
	w.federation.Close()
	return err
}

// through returns the client configuration of an administrator for a gateway.
func (w *world) through(gateway string) *rest.Config {
	config := rest.CopyConfig(w.config)
	config.Host = gateway
	return config
}

// newClients returns clients that use all gateways.
func (w *world) newClients(h *history) (*clients, error) {
	client, err := rest.HTTPClientFor(w.through(w.parts.addresses[0]))
	if err != nil {
		return nil, fmt.Errorf("creating the HTTP client: %w", err)
	}
	client.Timeout = 2 * operationTimeout
	return &clients{http: client, gateways: w.parts.addresses, namespace: namespace, keys: 8, history: h, count: map[outcome]int{}}, nil
}

// healWithin bounds the recovery of the federation.
const healWithin = 4 * time.Minute

// heal resumes all processes and waits until the federation has recovered.
func (w *world) heal(ctx context.Context, n *nemesis) error {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	for _, p := range w.federation.Processes() {
		_ = p.Resume() // most are not paused
	}
	for _, p := range w.federation.Processes() {
		if err := p.WaitReady(ctx); err != nil {
			return fmt.Errorf("waiting for %s: %w", p.Name(), err)
		}
	}
	return n.waitStable(ctx)
}
