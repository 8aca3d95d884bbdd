package clusterstatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
)

// secretIndex finds the Clusters of a Secret.
const secretIndex = "spec.secretRef"

// Controller runs a collector for each Cluster.
type Controller struct {
	client  client.Client
	live    client.Reader
	options Options

	mu         sync.Mutex
	ctx        context.Context // of all collectors; nil until started
	collectors map[string]*collector
	running    sync.WaitGroup
}

// Add registers the controller with a manager.
func Add(ctx context.Context, mgr manager.Manager, options Options) error {
	c := &Controller{client: mgr.GetClient(), live: mgr.GetAPIReader(), options: options.withDefaults(), collectors: map[string]*collector{}}
	err := mgr.GetFieldIndexer().IndexField(ctx, &clusterv1alpha1.Cluster{}, secretIndex, func(object client.Object) []string {
		return secretKey(object.(*clusterv1alpha1.Cluster).Spec.SecretRef)
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(c.run)); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named("cluster-status").
		For(&clusterv1alpha1.Cluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.clustersOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(c)
}

func secretKey(ref *clusterv1alpha1.LocalSecretReference) []string {
	if ref == nil {
		return nil
	}
	return []string{ref.Namespace + "/" + ref.Name}
}

func (c *Controller) clustersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	clusters := &clusterv1alpha1.ClusterList{}
	if err := c.client.List(ctx, clusters, client.MatchingFields{secretIndex: client.ObjectKeyFromObject(secret).String()}); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, 0, len(clusters.Items))
	for i := range clusters.Items {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: clusters.Items[i].Name}})
	}
	return requests
}

// run keeps the context of collectors until ctx ends.
func (c *Controller) run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for _, collector := range c.collectors {
		c.start(collector)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.running.Wait()
	return nil
}

// Reconcile starts the collector of a Cluster, updates its credentials, replaces it when the endpoint has changed, and
// stops it when the Cluster is gone.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1alpha1.Cluster{}
	if err := c.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			c.replace(request.Name, nil)
			forgetMetrics(request.Name)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	source, err := c.sourceOf(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !c.follow(cluster, source) {
		c.replace(cluster.Name, c.newCollector(cluster, source))
	}
	if source.elsewhere {
		return reconcile.Result{RequeueAfter: unwatchedInterval}, nil
	}
	return reconcile.Result{}, nil
}

// unwatchedInterval is how often credentials in namespaces that are not watched are read.
const unwatchedInterval = 30 * time.Second

// source is where the status of a member comes from: its agent's lease, or credentials, or a reason why there are none.
type source struct {
	pull      bool
	secret    *corev1.Secret
	reason    string // why there are no credentials
	elsewhere bool   // whether the Secret is in a namespace that is not watched
}

func (c *Controller) sourceOf(ctx context.Context, cluster *clusterv1alpha1.Cluster) (source, error) {
	if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
		return source{pull: true}, nil
	}
	ref := cluster.Spec.SecretRef
	if ref == nil {
		return source{reason: "spec.secretRef names no Secret with credentials for the cluster"}, nil
	}
	secret, reader := &corev1.Secret{}, client.Reader(c.client)
	elsewhere := ref.Namespace != names.ClusterNamespace
	if elsewhere {
		reader = c.live
	}
	err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return source{reason: fmt.Sprintf("Secret %s/%s with the credentials for the cluster does not exist", ref.Namespace, ref.Name), elsewhere: elsewhere}, nil
	}
	return source{secret: secret, elsewhere: elsewhere}, err
}

// follow reports whether the collector of a Cluster can continue with the changed source.
func (c *Controller) follow(cluster *clusterv1alpha1.Cluster, s source) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	existing := c.collectors[cluster.Name]
	if existing == nil || existing.uid != cluster.UID {
		return false
	}
	return existing.follow(cluster, s)
}

func (c *Controller) newCollector(cluster *clusterv1alpha1.Cluster, s source) *collector {
	n := &collector{name: cluster.Name, uid: cluster.UID, controller: c, source: s, wake: make(chan struct{}, 1)}
	if s.pull || s.secret == nil {
		return n
	}
	connection, err := fleet.Connect(cluster, s.secret)
	if err == nil {
		n.member, err = openMember(cluster.Name, cluster.UID, connection, c.options, n.wakeUp)
	}
	if err != nil {
		n.source = source{reason: err.Error()}
	}
	return n
}

// replace stops the collector of a Cluster and starts another, if any. The former one may still wait for its member; it can
// no longer write.
func (c *Controller) replace(name string, next *collector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if former := c.collectors[name]; former != nil && former.cancel != nil {
		former.cancel()
	}
	delete(c.collectors, name)
	if next == nil {
		return
	}
	c.collectors[name] = next
	if c.ctx != nil {
		c.start(next)
	}
}

func (c *Controller) start(n *collector) {
	ctx, cancel := context.WithCancel(c.ctx)
	n.cancel = cancel
	c.running.Go(func() { n.run(ctx) })
}
