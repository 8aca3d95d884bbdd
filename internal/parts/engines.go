package parts

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/controlplane"
)

// elsewhere returns the flags for access to the hub and, through the gateway, to other cells.
func (p *Parts) elsewhere(c *controlplane.ControlPlane) ([]string, error) {
	hub := p.federation.Hub
	atHub, err := hub.KubeconfigFor(engine+"-"+c.Name(), names.EngineUser(c.Name()))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(atHub)
	if err != nil {
		return nil, err
	}
	config.Clusters[hub.Name()].Server = p.gateway.Host + "/federation"
	atGateway := filepath.Join(p.federation.Dir(), "federation", engine+"-"+c.Name()+".kubeconfig")
	if err := os.MkdirAll(filepath.Dir(atGateway), 0o700); err != nil {
		return nil, err
	}
	if err := clientcmd.WriteToFile(*config, atGateway); err != nil {
		return nil, err
	}
	flags := []string{"--federation-kubeconfig=" + atGateway}
	if c.Role() != controlplane.Hub {
		flags = append(flags, "--hub-kubeconfig="+atHub)
	}
	return flags, nil
}

// grantEngine grants an engine its rights in its own control plane and elsewhere.
func grantEngine(ctx context.Context, hub client.Client, c *controlplane.ControlPlane) error {
	config, err := c.AdminConfig()
	if err != nil {
		return err
	}
	own, err := bootstrap.NewClient(config)
	if err != nil {
		return err
	}
	if err := bootstrap.GrantEngine(ctx, own, c.Name()); err != nil {
		return err
	}
	return bootstrap.GrantElsewhere(ctx, hub, c.Name())
}
