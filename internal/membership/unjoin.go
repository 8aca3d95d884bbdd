package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
)

// UnjoinOptions configure Unjoin.
type UnjoinOptions struct {
	// Hub is an administrator's configuration for the hub.
	Hub *rest.Config
	// Name is the name of the cluster in the federation.
	Name string
	// Member is an administrator's configuration for the cluster. Without it the cluster's registrar cleans up, and the empty
	// namespace of the identities is left behind.
	Member *rest.Config
	// Cells are the control planes besides the hub that have Works; only Force needs them.
	Cells []*rest.Config
	// Timeout bounds the wait until the cluster is drained; 0 means five minutes.
	Timeout time.Duration
	// Force removes a cluster that is gone without waiting; what the federation propagated there stays.
	Force bool
}

const (
	defaultTimeout = 5 * time.Minute
	// forcedMemberTimeout bounds the attempt to clean up in a member that is probably gone.
	forcedMemberTimeout = 10 * time.Second
)

// Unjoin removes a cluster from the federation: first what the federation propagated there, then its identities. It is
// idempotent, and can be repeated after a failure.
func Unjoin(ctx context.Context, options UnjoinOptions) error {
	if err := ValidateName(options.Name); err != nil {
		return err
	}
	h, err := openHub(ctx, options.Hub)
	if err != nil {
		return err
	}
	cluster, err := h.cluster(ctx, options.Name)
	if err != nil {
		return err
	}
	if cluster == nil && options.Member == nil {
		return errors.Join(h.withdraw(ctx, options.Name, ""), fmt.Errorf("there is no cluster called %s in the federation", options.Name))
	}
	// Connect to the member first: the credentials are deleted with the Cluster.
	m, err := h.leavingMember(ctx, cluster, &options)
	if err != nil && !options.Force {
		return err
	}
	if cluster != nil {
		if err := h.removeCluster(ctx, cluster, &options); err != nil {
			return err
		}
	}
	if m != nil {
		if err := m.leave(ctx, &options); err != nil {
			return err
		}
	}
	return h.withdraw(ctx, options.Name, "")
}

// leavingMember connects to the member. It returns nil if that is not possible and not needed.
func (h *hub) leavingMember(ctx context.Context, cluster *clusterv1alpha1.Cluster, options *UnjoinOptions) (*member, error) {
	if options.Member == nil {
		if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
			return nil, nil
		}
		config, err := h.registrar(ctx, cluster)
		if err != nil {
			return nil, err
		}
		return newMember(config, options.Name, h.federation)
	}
	m, err := newMember(options.Member, options.Name, h.federation)
	if err != nil {
		return nil, err
	}
	if cluster == nil || cluster.Spec.ID == "" {
		return m, nil
	}
	id, err := uid(ctx, m.client)
	if err != nil {
		return nil, fmt.Errorf("reading the ID of cluster %s: %w", options.Name, err)
	}
	if id != cluster.Spec.ID {
		return nil, fmt.Errorf("the given kubeconfig leads to another cluster than the one called %s in the federation", options.Name)
	}
	return m, nil
}

// removeCluster deletes the Cluster and waits until it is gone.
func (h *hub) removeCluster(ctx context.Context, cluster *clusterv1alpha1.Cluster, options *UnjoinOptions) error {
	if err := client.IgnoreNotFound(h.objects.Delete(ctx, cluster)); err != nil {
		return fmt.Errorf("deleting cluster %s: %w", cluster.Name, err)
	}
	if options.Force {
		return h.forceOut(ctx, cluster.Name, options.Cells)
	}
	timeout := options.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		left, err := h.cluster(ctx, cluster.Name)
		return left == nil || left.UID != cluster.UID, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("cluster %s still has objects that the federation propagated there; retry later, or use --force if it is gone for good", cluster.Name)
	}
	return err
}

// forceOut removes a Cluster at once: it removes the finalizer from its Works in all control planes.
func (h *hub) forceOut(ctx context.Context, cluster string, cells []*rest.Config) error {
	stores := []client.Client{h.objects}
	for _, config := range cells {
		store, err := client.New(config, client.Options{Scheme: h.objects.Scheme()})
		if err != nil {
			return fmt.Errorf("preparing a client for a cell: %w", err)
		}
		stores = append(stores, store)
	}
	for _, store := range stores {
		if err := abandonWorks(ctx, store, names.ExecutionNamespace(cluster)); err != nil {
			return fmt.Errorf("removing the works of cluster %s: %w", cluster, err)
		}
	}
	space := names.ExecutionNamespace(cluster)
	if err := h.client.CoreV1().Namespaces().Delete(ctx, space, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting namespace %s: %w", space, err)
	}
	left, err := h.cluster(ctx, cluster)
	if err != nil || left == nil {
		return err
	}
	if err := dropFinalizer(ctx, h.objects, left, names.ClusterFinalizer); err != nil {
		return fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	return nil
}

func abandonWorks(ctx context.Context, store client.Client, namespace string) error {
	works := &workv1alpha1.WorkList{}
	if err := store.List(ctx, works, client.InNamespace(namespace)); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	for i := range works.Items {
		work := &works.Items[i]
		if err := client.IgnoreNotFound(store.Delete(ctx, work)); err != nil {
			return err
		}
		if err := dropFinalizer(ctx, store, work, names.ExecutionFinalizer); err != nil {
			return err
		}
	}
	return nil
}

func dropFinalizer(ctx context.Context, store client.Client, object client.Object, finalizer string) error {
	before := object.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(store.Patch(ctx, object, client.MergeFrom(before)))
}

// leave removes the federation from the member. It does not wait for a member that is gone for good.
func (m *member) leave(ctx context.Context, options *UnjoinOptions) error {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if options.Force {
		bounded, cancel = context.WithTimeout(ctx, forcedMemberTimeout)
	}
	defer cancel()
	err := m.removeIdentities(bounded)
	if err == nil && options.Member != nil {
		err = m.removeNamespace(bounded)
	}
	if err != nil && options.Force {
		klog.FromContext(ctx).Info("the identities of the federation are left in the cluster", "cluster", m.cluster, "err", err)
		return nil
	}
	return err
}

// removeIdentities removes all identities, the registrar last because it may be the caller.
func (m *member) removeIdentities(ctx context.Context) error {
	if err := m.refuseForeign(ctx); err != nil {
		return err
	}
	cells, err := m.cells(ctx)
	if err != nil {
		return err
	}
	for _, i := range identities(m.cluster, cells) {
		if i.role == registrarRole {
			continue
		}
		if err := m.revoke(ctx, i); err != nil {
			return err
		}
	}
	for _, r := range allRoles {
		if r == registrarRole {
			continue
		}
		if err := m.removeRole(ctx, r); err != nil {
			return err
		}
	}
	return m.removeRegistrar(ctx)
}

func (m *member) removeRole(ctx context.Context, r role) error {
	name := roleName(m.cluster, r)
	rbac := m.client.RbacV1()
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{rbac.ClusterRoleBindings().Delete, rbac.ClusterRoles().Delete} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting role %s in cluster %s: %w", name, m.cluster, err)
		}
	}
	return nil
}

// removeRegistrar deletes the registrar's role, which owns the rest of it. The registrar may be the caller, and could delete
// nothing afterwards; the member's garbage collector can.
func (m *member) removeRegistrar(ctx context.Context) error {
	name := roleName(m.cluster, registrarRole)
	background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if err := m.client.RbacV1().ClusterRoles().Delete(ctx, name, background); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting role %s in cluster %s: %w", name, m.cluster, err)
	}
	return nil
}

// removeNamespace deletes the namespace of the identities, unless another federation uses it. It needs an administrator of the
// member.
func (m *member) removeNamespace(ctx context.Context) error {
	accounts, err := m.client.CoreV1().ServiceAccounts(names.ClusterNamespace).List(ctx, metav1.ListOptions{LabelSelector: names.ClusterLabel})
	if err != nil {
		return fmt.Errorf("listing the identities in cluster %s: %w", m.cluster, err)
	}
	for i := range accounts.Items {
		if accounts.Items[i].Labels[names.ClusterLabel] != m.cluster {
			return nil
		}
	}
	err = m.client.CoreV1().Namespaces().Delete(ctx, names.ClusterNamespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting namespace %s in cluster %s: %w", names.ClusterNamespace, m.cluster, err)
	}
	return nil
}
