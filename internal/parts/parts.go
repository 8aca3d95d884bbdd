// Package parts runs Cellplane itself on the control planes of a local federation: it registers cells and members with the
// hub and starts the hub manager, the gateways and the engines.
package parts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/hub/manager"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/local"
	"github.com/cellplane/cellplane/internal/process"
)

// GatewayContext is the kubeconfig context of the gateway.
const GatewayContext = "cellplane"

// Parts are the processes of Cellplane in a local federation.
type Parts struct {
	federation *local.Federation
	program    string // the cellplane binary
	gateway    *rest.Config
	cache      string // the address of the cluster-gateway

	mu        sync.Mutex
	processes []*process.Process
}

// Of returns a function that prepares the parts of a federation. program is the cellplane binary. A federation without a hub
// or without cells has no parts.
func Of(program string) func(*local.Federation) (local.Parts, error) {
	return func(f *local.Federation) (local.Parts, error) {
		if f.Hub == nil || len(f.Cells) == 0 {
			return nil, nil
		}
		p := &Parts{federation: f, program: program}
		if err := p.prepare(); err != nil {
			return nil, fmt.Errorf("preparing the parts of Cellplane: %w", err)
		}
		return p, nil
	}
}

// The names of the parts of Cellplane, which are also the commands that run them.
const (
	hubManager     = local.HubManager
	gateway        = local.Gateway
	clusterGateway = local.ClusterGateway
	engine         = local.Engine
	agent          = local.Agent
)

// The process name of the stock controllers that run against the gateway, and their user.
const (
	controllers           = local.FederationControllers + "/" + kubebin.KubeControllerManager
	kubeControllerManager = "system:kube-controller-manager"
)

func (p *Parts) prepare() error {
	for _, prepare := range []func() error{p.prepareHubManager, p.prepareGateway, p.prepareClusterGateway, p.prepareEngines, p.prepareAgents, p.prepareControllers} {
		if err := prepare(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parts) prepareHubManager() error {
	kubeconfig, err := p.federation.Hub.KubeconfigFor(hubManager, userOf(hubManager))
	if err != nil {
		return err
	}
	address, err := p.federation.Address(hubManager)
	if err != nil {
		return err
	}
	args := []string{
		hubManager, "--kubeconfig=" + kubeconfig, "--bind-address=" + address,
		"--state-dir=" + filepath.Join(p.federation.Dir(), hubManager, "state"),
	}
	p.add(hubManager, p.program, args, process.HTTPCheck("http://"+address+"/healthz", "", "", ""))
	return nil
}

func (p *Parts) prepareGateway() error {
	hub := p.federation.Hub
	kubeconfig, err := hub.KubeconfigFor(gateway, userOf(gateway))
	if err != nil {
		return err
	}
	frontProxy, err := hub.FrontProxy()
	if err != nil {
		return err
	}
	serving, err := hub.Serving(gateway)
	if err != nil {
		return err
	}
	address, err := p.federation.Address(gateway)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if p.cache, err = p.federation.Address(clusterGateway); err != nil {
		return err
	}
	if p.gateway, err = hub.AdminConfig(); err != nil {
		return err
	}
	p.gateway.Host = "https://" + address
	args := []string{
		gateway,
		"--hub-kubeconfig=" + kubeconfig,
		"--hub-proxy-client-cert-file=" + frontProxy.CertFile,
		"--hub-proxy-client-key-file=" + frontProxy.KeyFile,
		"--client-ca-file=" + hub.CAFile(),
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--state-dir=" + filepath.Join(p.federation.Dir(), gateway, "state"),
		"--cluster-gateway=https://" + p.cache,
	}
	p.add(gateway, p.program, args, process.HTTPCheck(p.gateway.Host+"/readyz", hub.CAFile(), "", ""))
	return nil
}

// prepareEngines prepares an engine for each cell, and one for the hub.
func (p *Parts) prepareEngines() error {
	for _, c := range p.engined() {
		if _, err := p.prepareEngine(c); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parts) prepareEngine(c *controlplane.ControlPlane) (*process.Process, error) {
	kubeconfig, err := c.KubeconfigFor(engine, userOf(engine))
	if err != nil {
		return nil, err
	}
	name := c.Name() + "/" + engine
	address, err := p.federation.Address(name)
	if err != nil {
		return nil, err
	}
	args := []string{engine, "--cell=" + c.Name(), "--kubeconfig=" + kubeconfig, "--metrics-address=" + address}
	if c.Role() == controlplane.Hub {
		args = append(args, "--hub")
	}
	elsewhere, err := p.elsewhere(c)
	if err != nil {
		return nil, err
	}
	args = append(args, elsewhere...)
	return p.add(name, p.program, args, process.HTTPCheck("http://"+address+"/healthz", "", "", "")), nil
}

// prepareControllers prepares the stock controllers for templates: they empty namespaces and collect garbage in all cells,
// through the gateway's /federation view, which has only templates.
func (p *Parts) prepareControllers() error {
	hub := p.federation.Hub
	kubeconfig, err := hub.KubeconfigFor("federation-controllers", kubeControllerManager)
	if err != nil {
		return err
	}
	throughGateway, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	throughGateway.Clusters[hub.Name()].Server = p.gateway.Host + "/federation"
	gatewayKubeconfig := filepath.Join(p.federation.Dir(), "federation", "kubeconfig")
	if err := os.MkdirAll(filepath.Dir(gatewayKubeconfig), 0o700); err != nil {
		return err
	}
	if err := clientcmd.WriteToFile(*throughGateway, gatewayKubeconfig); err != nil {
		return err
	}
	serving, err := hub.Serving("federation-controllers")
	if err != nil {
		return err
	}
	address, err := p.federation.Address(controllers)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + gatewayKubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--root-ca-file=" + hub.CAFile(), // the gateway's certificate is the hub's
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--tls-cert-file=" + serving.CertFile,
		"--tls-private-key-file=" + serving.KeyFile,
		"--profiling=false",
		"--v=1",
	}
	args = append(args, controlplane.FederationControllerFlags()...)
	p.add(controllers, p.federation.Binaries().Path(kubebin.KubeControllerManager), args, process.HTTPCheck("https://"+address+"/healthz", hub.CAFile(), "", ""))
	return nil
}

// engined returns the control planes with an engine.
func (p *Parts) engined() []*controlplane.ControlPlane {
	return append([]*controlplane.ControlPlane{p.federation.Hub}, p.federation.Cells...)
}

func (p *Parts) add(name, program string, args []string, check func(context.Context) error) *process.Process {
	part := p.newProcess(name, program, args, check)
	p.know(part)
	return part
}

func (p *Parts) newProcess(name, program string, args []string, check func(context.Context) error) *process.Process {
	folder, file := filepath.Split(name)
	if folder == "" {
		folder = file
	}
	return process.New(p.federation.Customize(process.Spec{
		Name: name, Path: program, Args: args, Check: check,
		LogFile: filepath.Join(p.federation.Dir(), folder, "logs", file+".log"),
	}))
}

// know makes a process one of those that are shown and stopped.
func (p *Parts) know(part *process.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = append(p.processes, part)
}

// Processes returns the processes of all parts.
func (p *Parts) Processes() []*process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.processes)
}

// Contexts returns the kubeconfig context of the gateway.
func (p *Parts) Contexts() map[string]*rest.Config {
	return map[string]*rest.Config{GatewayContext: p.gateway}
}

func userOf(part string) string { return "system:cellplane:" + part }

// Start registers cells and members, grants the parts their rights, starts them and waits until they are ready.
func (p *Parts) Start(ctx context.Context) error {
	if err := patiently(ctx, p.register); err != nil {
		return err
	}
	if err := p.grantRights(ctx); err != nil {
		return err
	}
	// The stock controllers start last: they exit without a gateway.
	processes := p.Processes()
	last := len(processes) - 1
	group, groupCtx := errgroup.WithContext(ctx)
	for _, part := range processes[:last] {
		group.Go(func() error { return startReady(groupCtx, part) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := p.waitForLeader(ctx); err != nil {
		return err
	}
	return startReady(ctx, processes[last])
}

// waitForLeader waits until the hub manager leads. Before that the hub does not default and validate policies.
func (p *Parts) waitForLeader(ctx context.Context) error {
	address, err := p.federation.Address(hubManager)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/replication", nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // it is restarted if it dies
		}
		defer response.Body.Close()
		var report manager.Report
		return json.NewDecoder(response.Body).Decode(&report) == nil && report.Working, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until the hub manager leads: %w", err)
	}
	return nil
}

// AddCell registers a new cell and starts its engine. It does not change the topology.
func (p *Parts) AddCell(ctx context.Context, cell *controlplane.ControlPlane) error {
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	if err := registerCell(ctx, hub, cell); err != nil {
		return err
	}
	if err := grantEngine(ctx, hub, cell); err != nil {
		return err
	}
	part, err := p.prepareEngine(cell)
	if err != nil {
		return err
	}
	if err := startReady(ctx, part); err != nil {
		p.forget(part)
		return errors.Join(err, part.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (p *Parts) forget(part *process.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes = slices.DeleteFunc(p.processes, func(other *process.Process) bool { return other == part })
}

func startReady(ctx context.Context, part *process.Process) error {
	if err := part.Start(ctx); err != nil {
		return err
	}
	return part.WaitReady(ctx)
}
