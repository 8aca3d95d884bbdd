package parts

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/membership"
	"github.com/cellplane/cellplane/internal/pki"
)

// registerWithin bounds how long registering is repeated.
const registerWithin = 2 * time.Minute

// patiently repeats what registers something while servers are too slow to answer, as they may be on a busy machine right after their start.
func patiently(ctx context.Context, register func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, registerWithin, true, func(ctx context.Context) (bool, error) {
		last = register(ctx)
		if bootstrap.Slow(last) {
			klog.FromContext(ctx).V(1).Info("registering again", "reason", last.Error())
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// register registers cells and members with the hub. It can be repeated.
func (p *Parts) register(ctx context.Context) error {
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	if err := bootstrap.CreateNamespaces(ctx, hub); err != nil {
		return err
	}
	for _, cell := range p.federation.Cells {
		if err := registerCell(ctx, hub, cell); err != nil {
			return err
		}
	}
	if err := bootstrap.CreateTopology(ctx, hub, p.cellNames()); err != nil {
		return err
	}
	if err := p.join(ctx); err != nil {
		return err
	}
	if err := p.withdrawMetricsServers(ctx); err != nil {
		return err
	}
	return p.placeMembers(ctx, hub)
}

// CertificatesRenewed writes the certificates for cells to the hub again. All others are read from their files.
func (p *Parts) CertificatesRenewed(ctx context.Context) error {
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	for _, c := range p.federation.ControlPlanes() {
		if c.Role() != controlplane.Cell {
			continue
		}
		if err := registerCell(ctx, hub, c); err != nil {
			return fmt.Errorf("registering %s: %w", c.Name(), err)
		}
	}
	return nil
}

func (p *Parts) hubClient() (client.Client, error) {
	config, err := p.federation.Hub.AdminConfig()
	if err != nil {
		return nil, err
	}
	// From files it would take client-go up to five minutes to notice a renewal.
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	return bootstrap.NewClient(config)
}

// registerCell writes a Cell and the Secrets it refers to.
func registerCell(ctx context.Context, hub client.Client, cell *controlplane.ControlPlane) error {
	pair, err := cell.FrontProxy()
	if err != nil {
		return err
	}
	frontProxy, err := readTLS(cell.CAFile(), pair)
	if err != nil {
		return err
	}
	etcdCA, pair, err := cell.EtcdFiles()
	if err != nil {
		return err
	}
	etcdClient, err := readTLS(etcdCA, pair)
	if err != nil {
		return err
	}
	return bootstrap.RegisterCell(ctx, hub, bootstrap.Cell{
		Name: cell.Name(), Server: cell.URL(), FrontProxy: frontProxy, Etcd: []string{cell.EtcdURL()}, EtcdClient: etcdClient,
	})
}

func readTLS(caFile string, pair pki.Pair) (content bootstrap.TLS, err error) {
	for into, file := range map[*[]byte]string{&content.CA: caFile, &content.Cert: pair.CertFile, &content.Key: pair.KeyFile} {
		if *into, err = os.ReadFile(file); err != nil {
			return content, err
		}
	}
	return content, nil
}

func (p *Parts) cellNames() []string {
	var cells []string
	for _, cell := range p.federation.Cells {
		cells = append(cells, cell.Name())
	}
	return cells
}

// join adds all members to the federation.
func (p *Parts) join(ctx context.Context) error {
	hub, err := p.federation.Hub.AdminConfig()
	if err != nil {
		return err
	}
	for i, member := range p.federation.Members {
		if p.federation.Spec().Pulls(i) {
			if err := p.registerPulling(ctx, member); err != nil {
				return fmt.Errorf("joining %s: %w", member.Name(), err)
			}
			continue
		}
		if p.federation.MetricsAgents() {
			if _, err := p.admitAgent(ctx, member, false); err != nil {
				return fmt.Errorf("joining %s: %w", member.Name(), err)
			}
		}
		config, err := member.AdminConfig()
		if err != nil {
			return err
		}
		if _, err := membership.Join(ctx, membership.Options{Hub: hub, Member: config, Name: member.Name(), Cells: p.cellNames()}); err != nil {
			return fmt.Errorf("joining %s: %w", member.Name(), err)
		}
	}
	return nil
}
