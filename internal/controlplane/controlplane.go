package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

// Role is the purpose of a control plane.
type Role string

const (
	// Hub stores global objects.
	Hub Role = "hub"
	// Cell stores a share of the federated objects, as data. Only its engine runs against it.
	Cell Role = "cell"
	// Member is a complete cluster with simulated nodes.
	Member Role = "member"
	// Nodeless is a complete cluster without nodes. Kubelets bring them.
	Nodeless Role = "nodeless"
)

// patience lets kubelets report late: they share their machine with tests.
const patience = "--node-monitor-grace-period=10m"

// runsWorkloads reports whether workloads run in a cluster. Elsewhere they are only data.
func (r Role) runsWorkloads() bool { return r == Member || r == Nodeless }

// Config describes a control plane.
type Config struct {
	Name     string
	Role     Role
	Dir      string // for data, certificates and logs
	Binaries kubebin.Binaries
	Ports    Ports
	// Address is where the API server listens; loopback if empty. With an address, pods reach it as the Service kubernetes.
	Address string
	// Nodes is the number of simulated nodes of a member.
	Nodes int
	// Site is the location of a member, in the labels of its nodes.
	Site Site
	// NoFsync makes etcd faster and not durable. For tests only.
	NoFsync bool
	// CertificateValidity is that of new certificates; 0 means a year.
	CertificateValidity time.Duration
	// Streams lets the simulated pods of a member answer logs, exec, attach and port-forward. Commands run on this machine,
	// as its user.
	Streams bool
	// Usage lets the simulated nodes of a member report what pods use, as metrics-server reads it. It costs kwok a cache of all pods.
	Usage bool
	// Customize changes the processes before they are started; nil changes nothing.
	Customize func(process.Spec) process.Spec
}

// Site is a location in terms of the topology labels of Kubernetes.
type Site struct {
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// ControlPlane is a control plane on this machine. Create one with New.
type ControlPlane struct {
	config Config
	pki    authorities

	etcd, apiServer *process.Process
	controllers     []*process.Process // clients of the API server
}

// New prepares certificates and configuration files. It starts nothing.
func New(config Config) (*ControlPlane, error) {
	c := &ControlPlane{config: config}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", config.Name, err)
	}
	return c, nil
}

func (c *ControlPlane) prepare() error {
	if err := os.MkdirAll(c.config.Dir, 0o700); err != nil {
		return err
	}
	if err := c.pki.ensure(c.path("pki"), c.config.CertificateValidity); err != nil {
		return err
	}
	var err error
	if c.etcd, err = c.newEtcd(); err != nil {
		return err
	}
	if c.apiServer, err = c.newAPIServer(); err != nil {
		return err
	}
	switch c.config.Role {
	case Hub:
		c.controllers, err = c.newHubControllers()
	case Member:
		c.controllers, err = c.newMemberControllers()
	case Nodeless:
		c.controllers, err = c.newClusterControllers(patience)
	case Cell: // only its engine runs against it
	}
	return err
}

// Name returns the name of the control plane.
func (c *ControlPlane) Name() string { return c.config.Name }

// Role returns the role of the control plane.
func (c *ControlPlane) Role() Role { return c.config.Role }

// Start starts all processes and waits until they are ready. Call Stop also after a failure.
func (c *ControlPlane) Start(ctx context.Context) error {
	for _, p := range []*process.Process{c.etcd, c.apiServer} {
		if err := startReady(ctx, p); err != nil {
			return err
		}
	}
	if c.config.Role == Member {
		if err := c.populateMember(ctx); err != nil {
			return fmt.Errorf("populating %s: %w", c.config.Name, err)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, p := range c.controllers {
		group.Go(func() error { return startReady(groupCtx, p) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if c.config.Role == Member {
		return c.waitForNodes(ctx)
	}
	return nil
}

func startReady(ctx context.Context, p *process.Process) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// Stop stops all processes in reverse order.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var errs []error
	group := errgroup.Group{}
	for _, p := range c.controllers {
		group.Go(func() error { return p.Stop(ctx) })
	}
	errs = append(errs, group.Wait(), c.apiServer.Stop(ctx), c.etcd.Stop(ctx))
	return errors.Join(errs...)
}

// Processes returns all processes in start order.
func (c *ControlPlane) Processes() []*process.Process {
	return append([]*process.Process{c.etcd, c.apiServer}, c.controllers...)
}

// Process returns a process by its program, for example kubebin.Etcd.
func (c *ControlPlane) Process(program string) (*process.Process, error) {
	all := c.Processes()
	i := slices.IndexFunc(all, func(p *process.Process) bool { return p.Name() == c.config.Name+"/"+program })
	if i < 0 {
		return nil, fmt.Errorf("%s has no process %s", c.config.Name, program)
	}
	return all[i], nil
}

// AdminConfig returns a client configuration for an administrator.
func (c *ControlPlane) AdminConfig() (*rest.Config, error) {
	return c.ClientConfig("admin", pki.Leaf{CommonName: "cellplane-admin", Organizations: []string{"system:masters"}})
}

// ClientConfig returns a client configuration for the user and groups of the leaf. The certificate is stored under the given
// file name.
func (c *ControlPlane) ClientConfig(file string, leaf pki.Leaf) (*rest.Config, error) {
	pair, err := c.pki.cluster.Ensure(c.path("pki"), file, leaf)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            c.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.pki.cluster.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile},
		QPS:             -1, // API servers have flow control
	}, nil
}

// FrontProxy returns the files of the front-proxy client certificate, which is trusted to forward users' requests: by the API server, and in a member by
// aggregated API servers.
func (c *ControlPlane) FrontProxy() (pki.Pair, error) {
	return c.pki.frontProxy.Ensure(c.path("pki"), "front-proxy-client", pki.Leaf{CommonName: c.frontProxyName()})
}

func (c *ControlPlane) address() string { return cmp.Or(c.config.Address, "127.0.0.1") }

// URL returns the address of the API server.
func (c *ControlPlane) URL() string {
	return fmt.Sprintf("https://%s:%d", c.address(), c.config.Ports.APIServer)
}

// CAFile returns the CA of the API server.
func (c *ControlPlane) CAFile() string { return c.pki.cluster.CertFile }

// EtcdURL returns the address of etcd.
func (c *ControlPlane) EtcdURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.Etcd)
}

// EtcdHTTPURL returns the address of etcd for health and metrics.
func (c *ControlPlane) EtcdHTTPURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.EtcdHTTP)
}

// EtcdPeerURL returns the address by which other members would reach etcd.
func (c *ControlPlane) EtcdPeerURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.EtcdPeer)
}

// EtcdDir returns the data directory of etcd.
func (c *ControlPlane) EtcdDir() string { return c.path("etcd") }

// EtcdFiles returns the CA of etcd and a client certificate.
func (c *ControlPlane) EtcdFiles() (caFile string, client pki.Pair, err error) {
	client, err = c.pki.etcd.Ensure(c.path("pki"), "etcd-client", pki.Leaf{CommonName: "cellplane"})
	return c.pki.etcd.CertFile, client, err
}

// EtcdFilesIn returns the files of EtcdFiles of the control plane in a directory.
func EtcdFilesIn(dir string) (caFile, certFile, keyFile string) {
	pki := filepath.Join(dir, "pki")
	return filepath.Join(pki, "etcd-ca.crt"), filepath.Join(pki, "etcd-client.crt"), filepath.Join(pki, "etcd-client.key")
}

func (c *ControlPlane) path(elem ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, elem...)...)
}

// newProcess returns a process of this control plane.
func (c *ControlPlane) newProcess(program string, args []string, check func(context.Context) error, env ...string) *process.Process {
	spec := process.Spec{
		Name:    c.config.Name + "/" + program,
		Path:    c.config.Binaries.Path(program),
		Args:    args,
		Env:     env,
		LogFile: c.path("logs", program+".log"),
		Check:   check,
	}
	if c.config.Customize != nil {
		spec = c.config.Customize(spec)
	}
	return process.New(spec)
}
