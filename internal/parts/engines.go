package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	cellengine "github.com/cellplane/cellplane/internal/engine"
	"github.com/cellplane/cellplane/internal/engine/autoscaled"
	"github.com/cellplane/cellplane/internal/engine/dependencies"
)

// engineElsewhere is the user of an engine outside of its own control plane. Each engine has its own, so that it can be
// revoked separately.
func engineElsewhere(c *controlplane.ControlPlane) string { return names.EngineUser(c.Name()) }

// elsewhere returns the flags for access to the hub and, through the gateway, to other cells.
func (p *Parts) elsewhere(c *controlplane.ControlPlane) ([]string, error) {
	hub := p.federation.Hub
	atHub, err := hub.KubeconfigFor(engine+"-"+c.Name(), engineElsewhere(c))
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

// grantElsewhere lets an engine write bindings of dependencies, and mark the targets of autoscalers, outside of its control plane.
func grantElsewhere(ctx context.Context, hub client.Client, c *controlplane.ControlPlane) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(engine) + ":elsewhere"}}
	if _, err := controllerutil.CreateOrUpdate(ctx, hub, role, func() error {
		role.Rules = slices.Concat(dependencies.Rules(), autoscaled.Rules(), cellengine.HubRules())
		return nil
	}); err != nil {
		return fmt.Errorf("granting rights to the engine of %s: %w", c.Name(), err)
	}
	if err := bind(ctx, hub, engineElsewhere(c), role.Name); err != nil {
		return fmt.Errorf("granting rights to the engine of %s: %w", c.Name(), err)
	}
	return nil
}
