package parts

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/agent/usage"
	"github.com/cellplane/cellplane/internal/bootstrap"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/process"
)

// prepareAgents prepares an agent for each member in pull mode, and if wanted one for each other member, which only reports metrics. It needs the address
// of the gateway.
func (p *Parts) prepareAgents() error {
	for i, member := range p.federation.Members {
		pulls := p.federation.Spec().Pulls(i)
		if !pulls && !p.federation.MetricsAgents() {
			continue
		}
		if err := p.prepareAgent(member, pulls); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parts) prepareAgent(member *controlplane.ControlPlane, pulls bool) error {
	atHub, err := p.federation.Hub.KubeconfigFor(agent+"-"+member.Name(), names.AgentUser(member.Name()))
	if err != nil {
		return err
	}
	atGateway := filepath.Join(p.federation.Dir(), "federation", agent+"-"+member.Name()+".kubeconfig")
	if err := p.throughGateway(atHub, atGateway); err != nil {
		return err
	}
	inMember, err := member.KubeconfigFor(agent, userOf(agent))
	if err != nil {
		return err
	}
	name := member.Name() + "/" + agent
	address, err := p.federation.Address(name)
	if err != nil {
		return err
	}
	args := []string{agent, "--cluster-name=" + member.Name(), "--kubeconfig=" + atGateway, "--member-kubeconfig=" + inMember, "--metrics-address=" + address}
	if !pulls {
		args = append(args, "--metrics-only")
	}
	p.add(name, p.program, args, process.HTTPCheck("http://"+address+"/healthz", "", "", ""))
	return nil
}

// admitAgent gives the agent of a member rights there: all of them, because it applies objects of any kind, or only to read what workloads use.
func (p *Parts) admitAgent(ctx context.Context, member *controlplane.ControlPlane, pulls bool) (client.Client, error) {
	config, err := member.AdminConfig()
	if err != nil {
		return nil, err
	}
	api, err := bootstrap.NewClient(config)
	if err != nil {
		return nil, err
	}
	role := "cluster-admin"
	if !pulls {
		reader := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: userOf(agent)}}
		if _, err := controllerutil.CreateOrUpdate(ctx, api, reader, func() error { reader.Rules = usage.Rules(); return nil }); err != nil {
			return nil, fmt.Errorf("granting rights to the agent: %w", err)
		}
		role = reader.Name
	}
	if err := bootstrap.Bind(ctx, api, userOf(agent), role); err != nil {
		return nil, fmt.Errorf("granting rights to the agent: %w", err)
	}
	return api, nil
}

// registerPulling registers a member in pull mode. The hub manager gives its agent rights in the federation.
func (p *Parts) registerPulling(ctx context.Context, member *controlplane.ControlPlane) error {
	api, err := p.admitAgent(ctx, member, true)
	if err != nil {
		return err
	}
	system := &corev1.Namespace{}
	if err := api.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("reading the ID of the cluster: %w", err)
	}
	hub, err := p.hubClient()
	if err != nil {
		return err
	}
	cluster := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: member.Name()}}
	_, err = controllerutil.CreateOrUpdate(ctx, hub, cluster, func() error {
		cluster.Spec.ID, cluster.Spec.SyncMode = string(system.UID), clusterv1alpha1.Pull
		return nil
	})
	return err
}
