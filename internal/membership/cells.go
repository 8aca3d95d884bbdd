package membership

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// Registrar returns the configuration with which the hub manager grants and revokes identities in a joined cluster.
func Registrar(ctx context.Context, hubConfig *rest.Config, cluster string) (*rest.Config, error) {
	h, err := openHub(ctx, hubConfig)
	if err != nil {
		return nil, err
	}
	found, err := h.cluster(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("there is no cluster called %s in the federation", cluster)
	}
	return h.registrar(ctx, found)
}

// Grant creates or repairs the identity of a cell in a joined cluster, and writes its credentials to the hub. It needs no
// administrator of the cluster.
func Grant(ctx context.Context, hubConfig *rest.Config, cluster, cell string) error {
	if err := validateCell(cell); err != nil {
		return err
	}
	h, err := openHub(ctx, hubConfig)
	if err != nil {
		return err
	}
	m, object, err := h.memberAsRegistrar(ctx, cluster)
	if err != nil {
		return err
	}
	ca, err := h.caBundle(ctx, cluster)
	if err != nil {
		return err
	}
	i := engine(cluster, cell)
	made, err := m.ensure(ctx, i)
	if err != nil {
		return err
	}
	return h.publish(ctx, i, secretData(made.token, ca), object)
}

// Revoke removes a cell's identity in a cluster and returns when the cluster refuses it. The configuration is that of the
// cluster's registrar or of an administrator. It is idempotent.
//
// The identity has lost its rights when Revoke returns; its token becomes invalid some seconds later. Its open watches end
// within minutes.
func Revoke(ctx context.Context, memberConfig *rest.Config, cluster, cell string) error {
	m, err := newMember(memberConfig, cluster, "")
	if err != nil {
		return err
	}
	i := engine(cluster, cell)
	if err := m.revoke(ctx, i); err != nil {
		return fmt.Errorf("revoking the identity of cell %s in cluster %s: %w", cell, cluster, err)
	}
	return m.confirmRevoked(ctx, i)
}

// Withdraw deletes the credentials of a cell for a cluster from the hub. Call it with Revoke.
func Withdraw(ctx context.Context, hubConfig *rest.Config, cluster, cell string) error {
	if err := validateCell(cell); err != nil {
		return err
	}
	h, err := openHub(ctx, hubConfig)
	if err != nil {
		return err
	}
	return h.withdraw(ctx, cluster, cell)
}

// RotateOptions configure Rotate.
type RotateOptions struct {
	// Hub is an administrator's configuration for the hub.
	Hub *rest.Config
	// Cluster is the member.
	Cluster string
	// Cells are those whose tokens are replaced; nil replaces the tokens of all identities.
	Cells []string
	// Grace is how long the former tokens stay valid, so that all parts receive the new ones.
	Grace time.Duration
}

// Rotate replaces tokens of a joined cluster. It needs no administrator of the cluster.
func Rotate(ctx context.Context, options RotateOptions) error {
	h, err := openHub(ctx, options.Hub)
	if err != nil {
		return err
	}
	m, object, err := h.memberAsRegistrar(ctx, options.Cluster)
	if err != nil {
		return err
	}
	chosen, err := m.chosen(ctx, options.Cells)
	if err != nil {
		return err
	}
	ca, err := h.caBundle(ctx, options.Cluster)
	if err != nil {
		return err
	}
	former, err := m.replaceTokens(ctx, h, chosen, ca, object)
	if err != nil {
		return err
	}
	select {
	case <-time.After(options.Grace):
	case <-ctx.Done():
		return fmt.Errorf("the new tokens of cluster %s are in use, but the former are still valid; rotate again to delete them: %w", options.Cluster, ctx.Err())
	}
	// The registrar's own former token is among them, so the clients here need the new one.
	if m, _, err = h.memberAsRegistrar(ctx, options.Cluster); err != nil {
		return err
	}
	return m.deleteTokens(ctx, former)
}

// chosen returns the identities of the given cells, or all of them.
func (m *member) chosen(ctx context.Context, cells []string) ([]identity, error) {
	existing, err := m.cells(ctx)
	if err != nil {
		return nil, err
	}
	if cells == nil {
		return identities(m.cluster, existing), nil
	}
	chosen := make([]identity, 0, len(cells))
	for _, cell := range cells {
		if !slices.Contains(existing, cell) {
			return nil, fmt.Errorf("cell %s has no identity in cluster %s", cell, m.cluster)
		}
		chosen = append(chosen, engine(m.cluster, cell))
	}
	return chosen, nil
}

// replaceTokens publishes a new token for each identity and returns the former ones, which are still valid.
func (m *member) replaceTokens(ctx context.Context, h *hub, chosen []identity, ca []byte, owner *clusterv1alpha1.Cluster) ([]corev1.Secret, error) {
	var former []corev1.Secret
	for _, i := range chosen {
		tokens, err := m.tokens(ctx, i)
		if err != nil {
			return nil, err
		}
		made, err := m.issue(ctx, i)
		if err != nil {
			return nil, err
		}
		if err := h.publish(ctx, i, secretData(made.token, ca), owner); err != nil {
			return nil, err
		}
		former = append(former, tokens...)
	}
	return former, nil
}
