package registration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/internal/agent/credentials"
	"github.com/cellplane/cellplane/internal/agent/identity"
	"github.com/cellplane/cellplane/internal/membership"
)

// UnregisterOptions configure Unregister.
type UnregisterOptions struct {
	// Hub is an administrator's configuration for the hub.
	Hub *rest.Config
	// Member is an administrator's configuration for the cluster; nil leaves the Secret of its agent there.
	Member *rest.Config
	// Name is the name of the cluster in the federation.
	Name string
	// Namespace is where the Secret of the agent is in the member.
	Namespace string
	// Timeout bounds the wait until the agent has removed what was propagated; 0 means five minutes.
	Timeout time.Duration
	// Force removes the cluster without waiting; what was propagated stays.
	Force bool
}

// Unregister removes a cluster in pull mode: its agent removes what was propagated, gateways no longer accept the agent, and the Secret of the
// agent and the rights that it has given are deleted. It can be repeated after a failure.
func Unregister(ctx context.Context, o UnregisterOptions) error {
	if err := membership.ValidateName(o.Name); err != nil {
		return err
	}
	secret, err := o.secret(ctx)
	if err != nil {
		return err
	}
	exists, err := o.exists(ctx)
	if err != nil {
		return err
	}
	if !exists && secret == nil {
		return fmt.Errorf("there is no cluster called %s in the federation", o.Name)
	}
	if exists {
		if err := membership.Unjoin(ctx, membership.UnjoinOptions{Hub: o.Hub, Name: o.Name, Timeout: o.Timeout, Force: o.Force}); err != nil {
			return err
		}
	}
	if secret == nil {
		return nil
	}
	if err := membership.RevokeStatus(ctx, o.Member, o.Name); err != nil {
		return err
	}
	return secret.Delete(ctx)
}

// exists reports whether the hub has the Cluster, in pull mode.
func (o *UnregisterOptions) exists(ctx context.Context) (bool, error) {
	scheme := runtime.NewScheme()
	if err := clusterv1alpha1.AddToScheme(scheme); err != nil {
		return false, err
	}
	hub, err := client.New(o.Hub, client.Options{Scheme: scheme})
	if err != nil {
		return false, fmt.Errorf("preparing a client for the hub: %w", err)
	}
	cluster := &clusterv1alpha1.Cluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: o.Name}, cluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("reading cluster %s on the hub: %w", o.Name, err)
	}
	if cluster.Spec.SyncMode != clusterv1alpha1.Pull {
		return false, fmt.Errorf("cluster %s is in push mode; remove it with `cellplane unjoin %s`", o.Name, o.Name)
	}
	return true, nil
}

// secret returns the Secret of the agent in the member, nil if there is none or the member is not given.
func (o *UnregisterOptions) secret(ctx context.Context) (*credentials.Secret, error) {
	if o.Member == nil {
		return nil, nil
	}
	member, err := kubernetes.NewForConfig(o.Member)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the cluster: %w", err)
	}
	secret := &credentials.Secret{Member: member, Namespace: o.Namespace}
	content, err := secret.Read(ctx)
	if err != nil || content == nil {
		return nil, err
	}
	if pair, err := content.Pair(); err == nil {
		if name, _ := identity.Cluster(pair.Leaf.Subject.CommonName, pair.Leaf.Subject.Organization); name != o.Name {
			return nil, fmt.Errorf("the given kubeconfig leads to a cluster with credentials of %s, not of %s", pair.Leaf.Subject.CommonName, o.Name)
		}
	}
	return secret, nil
}
