package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/pki"
	"github.com/cellplane/cellplane/internal/process"
)

// Role says what a control plane is for.
type Role string

const (
	// Hub holds what is not cut into cells.
	Hub Role = "hub"
	// Cell holds a share of the federated objects, as data: nothing runs
	// against it but its engine.
	Cell Role = "cell"
	// Member is a whole cluster with simulated nodes.
	Member Role = "member"
)

// Config says what to run.
type Config struct {
	Name     string
	Role     Role
	Dir      string // data, pki and logs go here
	Binaries kubebin.Binaries
	Ports    Ports
	// Nodes is how many simulated nodes a member has.
	Nodes int
	// Site is where a member says it is, as labels of its nodes.
	Site Site
	// NoFsync trades durability for speed. For tests only.
	NoFsync bool
	// Streams lets the simulated pods of a member answer logs, exec, attach and port-forward. What is executed runs on this machine
	// as the user who started it.
	Streams bool
	// Customize changes the processes before they are started; nil changes nothing.
	Customize func(process.Spec) process.Spec
}

// Site is a place in the well-known topology of Kubernetes.
type Site struct {
	Region string `json:"region,omitempty"`
	Zone   string `json:"zone,omitempty"`
}

// ControlPlane is a control plane on this machine. Create one with New.
type ControlPlane struct {
	config Config
	pki    authorities

	etcd, apiServer *process.Process
	controllers     []*process.Process // what needs the API server
}

// New prepares certificates and configuration files; nothing runs yet.
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
	if err := c.pki.ensure(c.path("pki")); err != nil {
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
	case Cell: // its engine is all that runs against it
	}
	return err
}

// Name returns the name of the control plane.
func (c *ControlPlane) Name() string { return c.config.Name }

// Role returns what the control plane is for.
func (c *ControlPlane) Role() Role { return c.config.Role }

// Start runs everything and returns when it is ready. What has been started
// when it fails is left for Stop.
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

// Stop ends everything, what depends on others first.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var errs []error
	group := errgroup.Group{}
	for _, p := range c.controllers {
		group.Go(func() error { return p.Stop(ctx) })
	}
	errs = append(errs, group.Wait(), c.apiServer.Stop(ctx), c.etcd.Stop(ctx))
	return errors.Join(errs...)
}

// Processes returns all processes in the order in which they start.
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

// ClientConfig returns a client configuration whose certificate is kept under
// the given file name. Its user and groups are those of the leaf.
func (c *ControlPlane) ClientConfig(file string, leaf pki.Leaf) (*rest.Config, error) {
	pair, err := c.pki.cluster.Ensure(c.path("pki"), file, leaf)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            c.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.pki.cluster.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile},
	}, nil
}

// FrontProxy returns the files of a client certificate that the API server
// trusts to name the users of the requests it forwards.
func (c *ControlPlane) FrontProxy() (pki.Pair, error) {
	return c.pki.frontProxy.Ensure(c.path("pki"), "front-proxy-client", pki.Leaf{CommonName: frontProxyName})
}

// URL returns the address of the API server.
func (c *ControlPlane) URL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.APIServer)
}

// CAFile returns the file of the authority that signed the API server's certificate.
func (c *ControlPlane) CAFile() string { return c.pki.cluster.CertFile }

// EtcdURL returns the address of etcd, and EtcdFiles what a client of it needs.
func (c *ControlPlane) EtcdURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.Etcd)
}

// EtcdHTTPURL returns the address of etcd's health and metrics.
func (c *ControlPlane) EtcdHTTPURL() string {
	return fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.EtcdHTTP)
}

// EtcdFiles returns the authority of etcd and a client certificate for it.
func (c *ControlPlane) EtcdFiles() (caFile string, client pki.Pair, err error) {
	client, err = c.pki.etcd.Ensure(c.path("pki"), "etcd-client", pki.Leaf{CommonName: "cellplane"})
	return c.pki.etcd.CertFile, client, err
}

func (c *ControlPlane) path(elem ...string) string {
	return filepath.Join(append([]string{c.config.Dir}, elem...)...)
}

// newProcess fills in what all processes of a control plane have in common.
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
