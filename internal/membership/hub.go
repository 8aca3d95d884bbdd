package membership

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// hub is the control plane that knows the members.
type hub struct {
	client     kubernetes.Interface
	objects    client.Client // of the federation's kinds
	federation string        // the UID of the hub's identifying namespace
}

func openHub(ctx context.Context, config *rest.Config) (*hub, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the hub: %w", err)
	}
	objects, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the hub: %w", err)
	}
	federation, err := uid(ctx, typed)
	if err != nil {
		return nil, fmt.Errorf("reading the ID of the hub: %w", err)
	}
	return &hub{client: typed, objects: objects, federation: federation}, nil
}

// cluster returns a Cluster, nil if there is none.
func (h *hub) cluster(ctx context.Context, name string) (*clusterv1alpha1.Cluster, error) {
	cluster := &clusterv1alpha1.Cluster{}
	err := h.objects.Get(ctx, client.ObjectKey{Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading cluster %s on the hub: %w", name, err)
	}
	return cluster, nil
}

// cellNames returns the names of the cells.
func (h *hub) cellNames(ctx context.Context) ([]string, error) {
	list := &cellplanev1alpha1.CellList{}
	if err := h.objects.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the cells of the federation: %w", err)
	}
	all := make([]string, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, list.Items[i].Name)
	}
	return all, nil
}

// refuseDuplicate returns an error if a cluster cannot be joined under a name.
func (h *hub) refuseDuplicate(ctx context.Context, name, id string) error {
	list := &clusterv1alpha1.ClusterList{}
	if err := h.objects.List(ctx, list); err != nil {
		return fmt.Errorf("listing the clusters of the federation: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		switch {
		case other.Name == name && other.DeletionTimestamp != nil:
			return fmt.Errorf("the cluster %s is leaving the federation; wait until it has left, then join again", name)
		case other.Name == name && other.Spec.ID != "" && other.Spec.ID != id:
			return fmt.Errorf("another cluster is already called %s; choose another name, or remove that cluster with `cellplane unjoin %s`", name, name)
		case other.Name != name && other.Spec.ID == id:
			return fmt.Errorf("this cluster is already a member, called %s; a cluster can join only once", other.Name)
		}
	}
	return nil
}

// publish writes the credentials of an identity to the hub.
func (h *hub) publish(ctx context.Context, i identity, data map[string][]byte, owner *clusterv1alpha1.Cluster) error {
	tags := map[string]string{names.SystemLabel: "true", names.ClusterLabel: i.cluster}
	if i.role == engineRole {
		tags[names.CellLabel] = i.cell
	}
	secret := coreapply.Secret(i.secret(), names.ClusterNamespace).WithType(corev1.SecretTypeOpaque).WithLabels(tags).WithData(data)
	if owner != nil {
		secret.WithOwnerReferences(metaapply.OwnerReference().
			WithAPIVersion(clusterv1alpha1.GroupVersion.String()).WithKind("Cluster").WithName(owner.Name).WithUID(owner.UID))
	}
	if _, err := h.client.CoreV1().Secrets(names.ClusterNamespace).Apply(ctx, secret, force); err != nil {
		return fmt.Errorf("writing Secret %s/%s to the hub: %w", names.ClusterNamespace, i.secret(), err)
	}
	return nil
}

func (h *hub) ensureNamespace(ctx context.Context) error {
	namespace := coreapply.Namespace(names.ClusterNamespace).WithLabels(map[string]string{names.SystemLabel: "true"})
	if _, err := h.client.CoreV1().Namespaces().Apply(ctx, namespace, force); err != nil {
		return fmt.Errorf("creating namespace %s on the hub: %w", names.ClusterNamespace, err)
	}
	return nil
}

// secret returns a published Secret, nil if there is none.
func (h *hub) secret(ctx context.Context, i identity) (*corev1.Secret, error) {
	secret, err := h.client.CoreV1().Secrets(names.ClusterNamespace).Get(ctx, i.secret(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s of the hub: %w", names.ClusterNamespace, i.secret(), err)
	}
	return secret, nil
}

// withdraw deletes published Secrets of a cluster: those of one cell, or all of them.
func (h *hub) withdraw(ctx context.Context, cluster, cell string) error {
	selector := labels.Set{names.ClusterLabel: cluster}
	if cell != "" {
		selector[names.CellLabel] = cell
	}
	err := h.client.CoreV1().Secrets(names.ClusterNamespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the credentials for cluster %s from the hub: %w", cluster, err)
	}
	return nil
}

// registrar returns the registrar's configuration for a member.
func (h *hub) registrar(ctx context.Context, cluster *clusterv1alpha1.Cluster) (*rest.Config, error) {
	i := identity{cluster: cluster.Name, role: registrarRole}
	secret, err := h.secret(ctx, i)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		return nil, fmt.Errorf("the hub has no Secret %s/%s; repair it with `cellplane join %s` and an administrator's kubeconfig of the cluster", names.ClusterNamespace, i.secret(), cluster.Name)
	}
	return fleet.MemberConfig(cluster, secret)
}

// memberAsRegistrar connects to a joined member as its registrar.
func (h *hub) memberAsRegistrar(ctx context.Context, name string) (*member, *clusterv1alpha1.Cluster, error) {
	cluster, err := h.cluster(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if cluster == nil {
		return nil, nil, fmt.Errorf("there is no cluster called %s in the federation", name)
	}
	config, err := h.registrar(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	m, err := newMember(config, name, h.federation)
	return m, cluster, err
}

// caBundle returns the CA bundle that the other identities of a cluster are published with.
func (h *hub) caBundle(ctx context.Context, cluster string) ([]byte, error) {
	secret, err := h.secret(ctx, identity{cluster: cluster, role: registrarRole})
	if err != nil || secret == nil {
		return nil, err
	}
	return slices.Clone(secret.Data[fleet.MemberCAKey]), nil
}
