package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/parts"
	"github.com/cellplane/cellplane/internal/process"
)

// The namespaces of the objects of clients.
const (
	namespace = "chaos"
	// replicatedNamespace is that of objects whose writes are acknowledged only when their backup cell has them.
	replicatedNamespace  = "chaos-replicated"
	durabilityAnnotation = "cellplane.io/durability"
)

// world is a federation with three gateways and two hub managers.
type world struct {
	federation *local.Federation
	parts      *extendedParts
	links      *links
	hub        client.Client
	config     *rest.Config // of an administrator, without a host
	program    string
}

// extendedParts are the parts of a local federation, and more replicas of some. Its hub managers replace the stock one.
type extendedParts struct {
	local.Parts
	federation *local.Federation
	links      *links
	program    string
	addresses  []string // of gateways

	mu    sync.Mutex
	extra []*process.Process
}

// kubeconfigOf is the file of a part's kubeconfig that leads through the network.
func kubeconfigOf(dir, part string) string { return filepath.Join(dir, "network", part+".kubeconfig") }

// withReplicas is parts.Of with more replicas. They are not started.
func withReplicas(program string, l *links, into **extendedParts) func(*local.Federation) (local.Parts, error) {
	return func(f *local.Federation) (local.Parts, error) {
		inner, err := parts.Of(program)(f)
		if err != nil {
			return nil, err
		}
		for _, part := range []string{local.Gateway, local.HubManager} {
			direct, err := f.Hub.KubeconfigFor(part, "system:cellplane:"+part)
			if err != nil {
				return nil, err
			}
			if err := l.through(direct, kubeconfigOf(f.Dir(), part)); err != nil {
				return nil, err
			}
		}
		c := &extendedParts{Parts: inner, federation: f, links: l, program: program, addresses: []string{inner.Contexts()[parts.GatewayContext].Host}}
		for _, name := range []string{"gateway-2", "steady-gateway"} {
			if err := c.addGateway(name); err != nil {
				return nil, err
			}
		}
		*into = c
		return c, c.addHubManagers(0)
	}
}

// addHubManagers adds two hub managers, in place of earlier ones.
func (c *extendedParts) addHubManagers(failoverAfter time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"hub-manager-1", "hub-manager-2"} {
		address, err := c.federation.Address(name)
		if err != nil {
			return err
		}
		c.add(process.Spec{
			Name: name, Path: self, Env: []string{hubManagerEnv + "=yes"}, Check: process.HTTPCheck("http://"+address+"/healthz", "", "", ""),
			Args: []string{
				"--kubeconfig=" + kubeconfigOf(c.federation.Dir(), local.HubManager), "--bind-address=" + address, "--state-dir=" + filepath.Join(c.federation.Dir(), name, "state"),
				fmt.Sprintf("--auto-failover-after=%v", failoverAfter),
			},
		})
	}
	return nil
}

// hubManagerEnv makes the test binary a hub manager.
const hubManagerEnv = "CELLPLANE_CHAOS_HUB_MANAGER"

// runHubManager is the command hub-manager without the lower limits of options, so that tests need not wait for an automatic failover.
func runHubManager(args []string) error {
	options := manager.NewOptions()
	flags := pflag.NewFlagSet(local.HubManager, pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	completed, err := options.Complete()
	if err != nil {
		return err
	}
	ctrllog.SetLogger(klog.Background())
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	return completed.Config().Run(ctx)
}

func (c *extendedParts) addGateway(name string) error {
	hub := c.federation.Hub
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
	c.add(process.Spec{
		Name: name, Path: c.program, Check: process.HTTPCheck("https://"+address+"/readyz", hub.CAFile(), "", ""),
		Args: []string{
			"gateway", "--hub-kubeconfig=" + kubeconfigOf(c.federation.Dir(), local.Gateway), "--hub-proxy-client-cert-file=" + proxy.CertFile, "--hub-proxy-client-key-file=" + proxy.KeyFile,
			"--client-ca-file=" + hub.CAFile(), "--tls-cert-file=" + serving.CertFile, "--tls-private-key-file=" + serving.KeyFile,
			"--bind-address=" + host, "--secure-port=" + port, "--state-dir=" + filepath.Join(c.federation.Dir(), name, "state"),
		},
	})
	return nil
}

// add adds a process, in place of an earlier one of its name.
func (c *extendedParts) add(spec process.Spec) {
	spec.LogFile = filepath.Join(c.federation.Dir(), spec.Name, "logs", spec.Name+".log")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.extra = slices.DeleteFunc(c.extra, func(p *process.Process) bool { return p.Name() == spec.Name })
	c.extra = append(c.extra, process.New(spec))
}

// Processes implements local.Parts.
func (c *extendedParts) Processes() []*process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.Parts.Processes(), c.extra...)
}

// named returns the processes whose names match.
func (c *extendedParts) named(name *regexp.Regexp) []*process.Process {
	return slices.DeleteFunc(c.Processes(), func(p *process.Process) bool { return !name.MatchString(p.Name()) })
}

// each does something to several processes at once.
func each(ctx context.Context, all []*process.Process, do func(context.Context, *process.Process) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range all {
		group.Go(func() error { return do(ctx, p) })
	}
	return group.Wait()
}

func start(ctx context.Context, p *process.Process) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

func stop(ctx context.Context, p *process.Process) error { return p.Stop(ctx) }

// newWorld starts a federation of two cells, and a third cell that is not in the topology.
func newWorld(ctx context.Context, dir, program string, binaries kubebin.Binaries) (*world, error) {
	w := &world{program: program}
	var err error
	if w.links, err = newLinks(local.HubName, "cell-a", "cell-b", "cell-c"); err != nil {
		return w, err
	}
	federation, err := local.Open(dir, local.Spec{Cells: 2}, local.Options{
		Binaries: binaries, NoFsync: true, Parts: withReplicas(program, w.links, &w.parts),
		Settings: w.links.settings(kubeconfigOf(dir, local.Gateway), local.HubName, "cell-a", "cell-b"), // the ports of cell-c are chosen later
	})
	if err != nil {
		return w, err
	}
	w.federation = federation
	w.links.federation.Store(federation)
	for _, c := range federation.ControlPlanes() {
		w.links.lead(c)
	}
	if err := federation.Start(ctx, func(string) {}); err != nil {
		return w, err
	}
	if err := federation.AddCell(ctx, "cell-c"); err != nil {
		return w, err
	}
	w.links.lead(federation.Cells[len(federation.Cells)-1])
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
	if err := w.useLinks(ctx); err != nil {
		return w, err
	}
	for name, annotations := range map[string]map[string]string{namespace: nil, replicatedNamespace: {durabilityAnnotation: "replicated"}} {
		if err := w.hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}); err != nil {
			return w, err
		}
	}
	return w, nil
}

// useLinks replaces connections that do not use the network, and starts the replicas.
func (w *world) useLinks(ctx context.Context) error {
	for _, c := range w.federation.Cells {
		if err := w.links.register(ctx, w.hub, c.Name()); err != nil {
			return err
		}
	}
	if err := each(ctx, w.parts.named(exactly(local.HubManager)), stop); err != nil {
		return err
	}
	return each(ctx, w.parts.named(regexp.MustCompile(`gateway|hub-manager-`)), func(ctx context.Context, p *process.Process) error {
		if p.Name() == local.ClusterGateway {
			return nil
		}
		if err := stop(ctx, p); err != nil {
			return err
		}
		return start(ctx, p)
	})
}

// close stops the federation.
func (w *world) close(ctx context.Context) error {
	if w == nil || w.federation == nil {
		return nil
	}
	err := w.federation.Stop(ctx)
	w.federation.Close()
	w.links.Close()
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
	return &clients{http: client, gateways: w.parts.addresses, namespaces: []string{namespace, replicatedNamespace}, keys: 8, history: h, count: map[outcome]int{}}, nil
}

// healWithin bounds the recovery of the federation.
const healWithin = 4 * time.Minute

// verify compares all cells and their backups with the topology.
func (w *world) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	verify := exec.CommandContext(ctx, w.program, "cells", "verify", "--kubeconfig", local.KubeconfigFile(w.federation.Dir()), "--context", local.HubName)
	if output, err := verify.CombinedOutput(); err != nil {
		return fmt.Errorf("cells verify: %w: %s", err, output)
	}
	return nil
}

// heal resumes all processes and waits until the federation has recovered.
func (w *world) heal(ctx context.Context, n *nemesis) error {
	ctx, cancel := context.WithTimeout(ctx, healWithin)
	defer cancel()
	if err := n.endFaults(); err != nil {
		return err
	}
	for _, p := range w.federation.Processes() {
		_ = p.Resume() // most are not paused
	}
	for _, p := range w.federation.Processes() {
		if p.Name() == local.HubManager {
			continue // it is replaced
		}
		if err := p.WaitReady(ctx); err != nil {
			return fmt.Errorf("waiting for %s: %w", p.Name(), err)
		}
	}
	return n.waitStable(ctx)
}
