package parts

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/controlplane"
	"github.com/cellplane/cellplane/internal/process"
)

// prepareAgents prepares an agent for each member in pull mode. It needs the address of the gateway.
func (p *Parts) prepareAgents() error {
	for i, member := range p.federation.Members {
		if !p.federation.Spec().Pulls(i) {
			continue
		}
		if err := p.prepareAgent(member); err != nil {
			return err
		}
	}
	return nil
}

func (p *Parts) prepareAgent(member *controlplane.ControlPlane) error {
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
	p.add(name, p.program, args, process.HTTPCheck("http://"+address+"/healthz", "", "", ""))
	return nil
}

// registerPulling registers a member in pull mode, and gives its agent all rights there. The hub manager gives it its rights in the federation.
func (p *Parts) registerPulling(ctx context.Context, member *controlplane.ControlPlane) error {
	api, err := apiOf(member)
	if err != nil {
		return err
	}
	if err := bind(ctx, api, userOf(agent), "cluster-admin"); err != nil {
		return fmt.Errorf("granting rights to the agent: %w", err)
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
