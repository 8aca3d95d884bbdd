package clusterapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cellplane/cellplane/api"
	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/membership"
)

const (
	// workers is how many clusters join or leave concurrently; leaving may take long.
	workers = 4
	// review is how often every cluster is reconciled, to notice changes in the federation.
	review = 5 * time.Minute
	// The back-off after failures. It is long, because control planes take minutes to start.
	firstPause   = time.Second
	longestPause = time.Minute
	// leaveTimeout bounds one attempt to unjoin a cluster in good order.
	leaveTimeout = 2 * time.Minute
)

// Controller joins and unjoins the clusters of one management cluster.
type Controller struct {
	hub        *rest.Config
	clusters   client.Client // of the federation
	management kubernetes.Interface
	source     fleet.Source
	found      *found
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	events     recorder

	id string // of the management cluster
}

// New prepares a controller. Only one process of a federation may run it at a time.
func New(hub, management *rest.Config) (*Controller, error) {
	scheme := runtime.NewScheme()
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	clusters, err := client.New(hub, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the hub: %w", err)
	}
	management = rest.AddUserAgent(rest.CopyConfig(management), "cluster-api")
	typed, err := kubernetes.NewForConfig(management)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the management cluster of Cluster API: %w", err)
	}
	source, err := newSource(management)
	if err != nil {
		return nil, fmt.Errorf("preparing a client for the management cluster of Cluster API: %w", err)
	}
	c := &Controller{hub: hub, clusters: clusters, management: typed, source: source, events: recorder{client: typed}}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstPause, longestPause))
	c.found = newFound(c.changed)
	return c, nil
}

// changed queues a cluster without back-off.
func (c *Controller) changed(key types.NamespacedName) {
	c.queue.Forget(key)
	c.queue.Add(key)
}

// Run runs until the context ends. It waits for an unreachable management cluster.
func (c *Controller) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	if !c.identify(ctx) {
		return nil
	}
	logger := klog.FromContext(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		fleet.Watch(ctx, c.source, c.found, fleet.EachReason(func(err error) {
			logger.Info("watching the clusters of Cluster API failed, will retry", "err", err)
		}))
	})
	group.Go(func() { c.review(ctx) })
	for range workers {
		group.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	group.Wait()
	return nil
}

// identify reads the ID of the management cluster. It returns false if the context ends first.
func (c *Controller) identify(ctx context.Context) bool {
	ticker := time.NewTicker(firstPause)
	defer ticker.Stop()
	for {
		namespace, err := c.management.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			c.id = string(namespace.UID)
			return true
		}
		klog.FromContext(ctx).V(1).Info("identifying the management cluster of Cluster API failed, will retry", "err", err)
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// review queues all clusters once the management cluster has been listed, and periodically. That covers clusters that were
// deleted while no controller watched, and those that left the federation though they still exist.
func (c *Controller) review(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-c.found.synced:
	}
	ticker := time.NewTicker(review)
	defer ticker.Stop()
	for {
		for _, key := range c.found.keys() {
			c.queue.Add(key)
		}
		for _, key := range c.joined(ctx) {
			c.queue.Add(key)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// joined returns the clusters of this management cluster that are in the federation.
func (c *Controller) joined(ctx context.Context) []types.NamespacedName {
	list := &clusterv1alpha1.ClusterList{}
	if err := c.clusters.List(ctx, list, client.MatchingLabels{names.ClusterAPIManagementLabel: c.id}); err != nil {
		klog.FromContext(ctx).Info("listing the clusters of the federation failed", "err", err)
		return nil
	}
	keys := make([]types.NamespacedName, 0, len(list.Items))
	for i := range list.Items {
		keys = append(keys, types.NamespacedName{Namespace: list.Items[i].Labels[names.ClusterAPINamespaceLabel], Name: list.Items[i].Name})
	}
	return keys
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.Reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Info("reconciling a cluster of Cluster API failed, will retry", "cluster", key, "err", err)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// Reconcile joins a cluster that exists and unjoins one that does not.
func (c *Controller) Reconcile(ctx context.Context, key types.NamespacedName) error {
	machine, known := c.found.get(key)
	switch {
	case !known:
		return nil // the list is not complete yet
	case machine == nil:
		return c.leave(ctx, key, "")
	case machine.moving:
		return nil // it moves to another management cluster, or is paused
	case machine.deleting:
		return c.leave(ctx, key, machine.uid)
	case machine.stays:
		return nil
	}
	err := c.join(ctx, key, machine)
	if err != nil {
		c.events.record(ctx, key, machine, reasonJoinFailed, err.Error())
	}
	return err
}

// join joins a cluster, unless it is a member already.
func (c *Controller) join(ctx context.Context, key types.NamespacedName, machine *machine) error {
	marks := map[string]string{
		names.ClusterAPIManagementLabel: c.id, names.ClusterAPINamespaceLabel: key.Namespace, names.ClusterAPIUIDLabel: string(machine.uid),
	}
	cluster, err := c.cluster(ctx, key.Name)
	if err != nil {
		return err
	}
	if cluster != nil {
		if cluster.Labels[names.ClusterAPIManagementLabel] == "" {
			return nil // joined by somebody else
		}
		if cluster.DeletionTimestamp == nil && carries(cluster.Labels, marks) {
			if whole, err := c.whole(ctx, cluster); whole || err != nil {
				return err
			}
		}
	}
	config, err := c.kubeconfig(ctx, key)
	if err != nil {
		return err
	}
	if _, err := membership.Join(ctx, membership.Options{Hub: c.hub, Member: config, Name: key.Name, Labels: marks}); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("joined a cluster of Cluster API", "cluster", key)
	c.events.record(ctx, key, machine, reasonJoined, "The cluster has joined the federation as "+key.Name)
	return nil
}

// whole reports whether a join was completed: its last step makes the Cluster the owner of the credentials.
func (c *Controller) whole(ctx context.Context, cluster *clusterv1alpha1.Cluster) (bool, error) {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.clusters.List(ctx, secrets, client.InNamespace(names.ClusterNamespace), client.MatchingLabels{names.ClusterLabel: cluster.Name}); err != nil {
		return false, fmt.Errorf("reading the credentials of cluster %s: %w", cluster.Name, err)
	}
	for i := range secrets.Items {
		if !slices.ContainsFunc(secrets.Items[i].OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == cluster.UID }) {
			return false, nil
		}
	}
	return len(secrets.Items) > 0, nil
}

// leave unjoins a cluster that was joined for an object of the management cluster; with a UID only for that object. The
// member, and its identities with it, may be gone already.
func (c *Controller) leave(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	cluster, err := c.cluster(ctx, key.Name)
	if err != nil || cluster == nil {
		return err
	}
	marks := map[string]string{names.ClusterAPIManagementLabel: c.id, names.ClusterAPINamespaceLabel: key.Namespace}
	if uid != "" {
		marks[names.ClusterAPIUIDLabel] = string(uid)
	}
	if !carries(cluster.Labels, marks) {
		return nil
	}
	klog.FromContext(ctx).Info("unjoining a deleted cluster of Cluster API", "cluster", key)
	err = membership.Unjoin(ctx, membership.UnjoinOptions{Hub: c.hub, Name: key.Name, Timeout: leaveTimeout})
	if err == nil {
		return nil
	}
	left, readErr := c.cluster(ctx, key.Name)
	if readErr != nil || left != nil && left.UID == cluster.UID {
		return err
	}
	klog.FromContext(ctx).Info("unjoined a cluster that could not be cleaned up", "cluster", key, "err", err)
	return nil
}

func carries(labels, marks map[string]string) bool {
	for key, value := range marks {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// cluster returns a Cluster of the federation, nil if there is none.
func (c *Controller) cluster(ctx context.Context, name string) (*clusterv1alpha1.Cluster, error) {
	cluster := &clusterv1alpha1.Cluster{}
	err := c.clusters.Get(ctx, client.ObjectKey{Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading cluster %s on the hub: %w", name, err)
	}
	return cluster, nil
}
