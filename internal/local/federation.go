package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/cellplane/cellplane/api/crds"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/kubebin"
	"github.com/cellplane/cellplane/internal/ports"
	"github.com/cellplane/cellplane/internal/process"
)

// Options are the options of a federation.
type Options struct {
	Binaries kubebin.Binaries
	// Parts prepares the processes on top of the control planes. It may be nil, and may return nil.
	Parts func(*Federation) (Parts, error)
	// NoFsync makes etcd faster and not durable. For tests only.
	NoFsync bool
	// CertificateValidity is that of new certificates; 0 means a year.
	CertificateValidity time.Duration
	// Streams lets simulated pods answer logs, exec, attach and port-forward. Commands run on this machine, as its user.
	Streams bool
	// MetricsAgents and MetricsServer are the defaults of the settings.
	MetricsAgents, MetricsServer bool
	// Settings change how processes run. Nil keeps the settings of the last run.
	Settings *Settings
	// Adjust changes settings that are kept or given. It may be nil.
	Adjust func(*Settings)
}

// Parts are the processes of Cellplane itself.
type Parts interface {
	// Processes returns all of them.
	Processes() []*process.Process
	// Contexts returns more contexts for the kubeconfig. The first one by name becomes the default.
	Contexts() map[string]*rest.Config
	// Start starts them after the control planes, and waits until they are ready.
	Start(ctx context.Context) error
	// Later returns what starts after all others are ready, and does not have to, because it may have to be built before. It is done when the context ends. The
	// note says why it takes long; it is empty if it does not.
	Later() (note string, start func(ctx context.Context) error)
	// AddCell prepares and starts the parts of a new cell.
	AddCell(ctx context.Context, cell *controlplane.ControlPlane) error
	// CertificatesRenewed passes renewed certificates to those who do not read their files. It can be repeated.
	CertificatesRenewed(ctx context.Context) error
}

// Federation is a federation that this process runs. Create one with Open, then call Start.
type Federation struct {
	Hub     *controlplane.ControlPlane // nil without a hub
	Cells   []*controlplane.ControlPlane
	Members []*controlplane.ControlPlane

	parts   Parts // may be nil
	options Options
	dir     string
	lock    *os.File

	adding sync.Mutex // one cell is added at a time
	mu     sync.Mutex // guards Cells while the federation runs, and the fields below
	state  state
	// reserved are the servers whose ports this process has reserved.
	reserved map[string]bool
}

// Open prepares the federation in dir, or a new one of the given spec, and locks the directory. Close unlocks it.
func Open(dir string, spec Spec, options Options) (_ *Federation, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f := &Federation{dir: dir, options: options}
	if f.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := f.loadOrChoose(spec); err != nil {
		return nil, err
	}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	if options.Parts != nil {
		if f.parts, err = options.Parts(f); err != nil {
			return nil, err
		}
	}
	return f, f.writeKubeconfig()
}

// loadOrChoose loads the state, or chooses ports for a new federation.
func (f *Federation) loadOrChoose(spec Spec) error {
	kept, err := loadState(f.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case kept.Spec != spec:
		return fmt.Errorf("the federation in %s has other sizes: %+v", f.dir, kept.Spec)
	default:
		f.state = kept
		f.takeSettings()
		for _, name := range slices.Sorted(maps.Keys(kept.Ports)) {
			ports := kept.Ports[name]
			if err := ports.Reserve(name); err != nil {
				return err
			}
			f.state.Ports[name] = ports
		}
		return f.state.save(f.dir)
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	f.state = state{Spec: spec, Ports: map[string]controlplane.Ports{}}
	f.takeSettings()
	for _, name := range f.state.Spec.ControlPlaneNames() {
		if f.state.Ports[name], err = controlplane.ChoosePorts(); err != nil {
			return err
		}
	}
	return f.state.save(f.dir)
}

func (f *Federation) takeSettings() {
	if f.options.Settings != nil {
		f.state.Settings = *f.options.Settings
	}
	if f.options.Adjust != nil {
		f.options.Adjust(&f.state.Settings)
	}
}

// Spec returns the size of the federation.
func (f *Federation) Spec() Spec { return f.state.Spec }

// Settings returns how its processes run.
func (f *Federation) Settings() Settings { return f.state.Settings }

// MetricsAgents reports whether members in push mode have an agent, too.
func (f *Federation) MetricsAgents() bool {
	return ptr.Deref(f.state.Settings.MetricsAgents, f.options.MetricsAgents)
}

// MetricsServer reports whether members have metrics-server.
func (f *Federation) MetricsServer() bool {
	return ptr.Deref(f.state.Settings.MetricsServer, f.options.MetricsServer)
}

// Customize applies the settings of the federation to a process.
func (f *Federation) Customize(spec process.Spec) process.Spec {
	return f.state.Settings.customize(spec)
}

// prepare creates the control planes concurrently, because keys and certificates take time.
func (f *Federation) prepare() error {
	spec, cells := f.state.Spec, f.state.cellNames()
	f.Cells = make([]*controlplane.ControlPlane, len(cells))
	f.Members = make([]*controlplane.ControlPlane, spec.Members)
	var group errgroup.Group
	add := func(into **controlplane.ControlPlane, role controlplane.Role, name string) {
		group.Go(func() (err error) {
			*into, err = f.newControlPlane(role, name)
			return err
		})
	}
	if !spec.WithoutHub {
		add(&f.Hub, controlplane.Hub, HubName)
	}
	for i, name := range cells {
		add(&f.Cells[i], controlplane.Cell, name)
	}
	for i, name := range spec.memberNames() {
		add(&f.Members[i], controlplane.Member, name)
	}
	return group.Wait()
}

func (f *Federation) newControlPlane(role controlplane.Role, name string) (*controlplane.ControlPlane, error) {
	return controlplane.New(controlplane.Config{
		Name:                name,
		Role:                role,
		Dir:                 filepath.Join(f.dir, name),
		Binaries:            f.options.Binaries,
		Ports:               f.state.Ports[name],
		Nodes:               f.state.Spec.Nodes,
		CertificateValidity: f.options.CertificateValidity,
		NoFsync:             f.options.NoFsync || isFalse(f.state.Settings.Fsync),
		Streams:             f.options.Streams && !isFalse(f.state.Settings.PodStreams),
		Usage:               f.MetricsAgents() || f.MetricsServer(),
		Customize:           f.Customize,
	})
}

func (f *Federation) writeKubeconfig() error {
	contexts := map[string]*rest.Config{}
	for _, c := range f.ControlPlanes() {
		config, err := c.AdminConfig()
		if err != nil {
			return err
		}
		contexts[c.Name()] = config
	}
	if len(contexts) == 0 {
		return nil
	}
	current := f.ControlPlanes()[0].Name()
	if f.parts != nil {
		extra := f.parts.Contexts()
		maps.Copy(contexts, extra)
		current = slices.Min(append(slices.Collect(maps.Keys(extra)), current))
	}
	data, err := clientcmd.Write(*controlplane.Kubeconfig(contexts, current))
	if err != nil {
		return err
	}
	return replaceFile(KubeconfigFile(f.dir), data)
}

// Start starts all processes and waits until they are ready. It calls ready for each control plane that becomes ready. Call
// Stop also after a failure.
func (f *Federation) Start(ctx context.Context, ready func(name string)) error {
	if err := f.checkRestored(); err != nil {
		return err
	}
	if err := f.startControlPlanes(ctx, ready); err != nil {
		return err
	}
	if f.parts == nil {
		return nil
	}
	return f.parts.Start(ctx)
}

// later returns what starts after all others, as [Parts] do.
func (f *Federation) later() (note string, start func(context.Context) error) {
	if f.parts == nil {
		return "", func(context.Context) error { return nil }
	}
	return f.parts.Later()
}

func (f *Federation) startControlPlanes(ctx context.Context, ready func(name string)) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range f.ControlPlanes() {
		group.Go(func() error {
			if err := startControlPlane(ctx, c); err != nil {
				return err
			}
			ready(c.Name())
			return nil
		})
	}
	return group.Wait()
}

func startControlPlane(ctx context.Context, c *controlplane.ControlPlane) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	if err := installCRDs(ctx, c); err != nil {
		return fmt.Errorf("installing the CRDs in %s: %w", c.Name(), err)
	}
	return nil
}

// installCRDs installs the CRDs in the hub and the cells.
func installCRDs(ctx context.Context, c *controlplane.ControlPlane) error {
	if c.Role() == controlplane.Member {
		return nil
	}
	config, err := c.AdminConfig()
	if err != nil {
		return err
	}
	return crds.Install(ctx, config)
}

// Stop stops all processes, those of Cellplane itself first.
func (f *Federation) Stop(ctx context.Context) error {
	var parts errgroup.Group
	for _, p := range f.partProcesses() {
		parts.Go(func() error { return p.Stop(ctx) })
	}
	partsErr := parts.Wait()
	var group errgroup.Group
	for _, c := range f.ControlPlanes() {
		group.Go(func() error { return c.Stop(ctx) })
	}
	return errors.Join(partsErr, group.Wait())
}

// Close releases the ports and the directory. Call Stop first.
func (f *Federation) Close() {
	for _, planePorts := range f.state.Ports {
		planePorts.Release()
	}
	for _, port := range f.state.PartPorts {
		ports.Release(port)
	}
	f.lock.Close()
}

// Dir returns the directory of the federation.
func (f *Federation) Dir() string { return f.dir }

// Binaries returns the Kubernetes programs of the federation.
func (f *Federation) Binaries() kubebin.Binaries { return f.options.Binaries }

// Address returns the loopback address of a server. Its port is chosen once and saved.
func (f *Federation) Address(name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	port, kept := f.state.PartPorts[name]
	if kept && f.reserved[name] {
		return loopback(port), nil
	}
	if f.reserved == nil {
		f.reserved = map[string]bool{}
	}
	f.reserved[name] = true
	if kept {
		if err := ports.Reserve(port); err != nil {
			return "", fmt.Errorf("port %d of %s is taken: %w; free it, or delete the federation with `cellplane down --purge`", port, name, err)
		}
		return loopback(port), nil
	}
	port, err := ports.Choose()
	if err != nil {
		return "", err
	}
	if f.state.PartPorts == nil {
		f.state.PartPorts = map[string]int{}
	}
	f.state.PartPorts[name] = port
	return loopback(port), f.state.save(f.dir)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ControlPlanes returns the hub, the cells and the members.
func (f *Federation) ControlPlanes() []*controlplane.ControlPlane {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*controlplane.ControlPlane
	if f.Hub != nil {
		all = append(all, f.Hub)
	}
	return slices.Concat(all, f.Cells, f.Members)
}

// Processes returns all processes.
func (f *Federation) Processes() []*process.Process {
	var all []*process.Process
	for _, c := range f.ControlPlanes() {
		all = append(all, c.Processes()...)
	}
	return append(all, f.partProcesses()...)
}

func (f *Federation) partProcesses() []*process.Process {
	if f.parts == nil {
		return nil
	}
	return f.parts.Processes()
}

// Process returns a process by its name, for example "cell-a/etcd".
func (f *Federation) Process(name string) (*process.Process, error) {
	for _, p := range f.Processes() {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no process %q", name)
}

// Status returns the status of all processes, checked concurrently.
func (f *Federation) Status(ctx context.Context) []process.Status {
	processes := f.Processes()
	all := make([]process.Status, len(processes))
	var group errgroup.Group
	for i, p := range processes {
		group.Go(func() error {
			all[i] = p.Status(ctx)
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	return all
}
