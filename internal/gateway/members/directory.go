package members

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/gateway/keep"
)

// Directory watches the members and holds the connections to them.
type Directory struct {
	// Dial connects to a member through a tunnel of its agent. It may be set before Run; without it such members cannot be reached.
	Dial func(ctx context.Context, cluster string) (net.Conn, error)

	clusters, secrets cache.SharedIndexInformer
	kept              *keep.Value[known]

	changed chan struct{}

	mu     sync.Mutex
	opened map[string]*connection
}

// NewDirectory returns a Directory that watches the Clusters of the hub and their Secrets. If dir is not empty, it keeps them there for a
// start while the hub is down.
func NewDirectory(hub *rest.Config, dir string) (*Directory, error) {
	scheme := runtime.NewScheme()
	if err := clusterv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(hub)
	config.APIPath = "/apis"
	config.GroupVersion = &clusterv1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	objects, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for Clusters: %w", err)
	}
	client, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("creating a client for Clusters: %w", err)
	}
	d := &Directory{opened: map[string]*connection{}, kept: keep.NewValue[known](dir, "members.json"), changed: make(chan struct{}, 1)}
	d.clusters = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(objects, "clusters", "", fields.Everything()), &clusterv1alpha1.Cluster{}, 0, nil)
	d.secrets = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "secrets", names.ClusterNamespace, fields.Everything()), &corev1.Secret{}, 0, nil)
	if _, err = d.clusters.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: d.forget}); err != nil {
		return nil, err
	}
	return d, d.noteChanges()
}

// Run watches the hub until the context ends.
func (d *Directory) Run(ctx context.Context) {
	go d.secrets.RunWithContext(ctx)
	go d.keep(ctx)
	d.clusters.RunWithContext(ctx)
}

func (d *Directory) forget(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.opened[key]; c != nil {
		c.close()
		delete(d.opened, key)
	}
}

// connection is a connection to a member that requests share.
type connection struct {
	*fleet.MemberConnection
	base               *url.URL
	requests, upgrades http.RoundTripper
}

func (c *connection) close() {
	for _, tripper := range []http.RoundTripper{c.requests, c.upgrades} {
		closer, ok := tripper.(interface{ CloseIdleConnections() })
		if ok {
			closer.CloseIdleConnections()
		}
	}
}

// member returns the connection to a member. The error can be sent to a client.
func (d *Directory) member(name string) (*member, error) {
	cluster, err := d.Cluster(name)
	if err != nil {
		return nil, err
	}
	secret, err := d.impersonator(cluster)
	if err != nil {
		return nil, err
	}
	c, err := d.connect(cluster, secret)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	return &member{connection: c}, nil
}

// impersonator returns the Secret with the token that may impersonate callers; nil for a member that is reached through a tunnel, whose agent has it.
func (d *Directory) impersonator(cluster *clusterv1alpha1.Cluster) (*corev1.Secret, error) {
	ref := cluster.Spec.ImpersonatorSecretRef
	if fleet.Tunnelled(cluster, ref) {
		if d.Dial == nil {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s cannot be reached: this gateway has no cluster-gateway, which keeps the tunnels of agents", cluster.Name))
		}
		return nil, nil
	}
	if ref == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cluster %s cannot be reached in your name: its spec.impersonatorSecretRef is not set", cluster.Name))
	}
	if ref.Namespace != names.ClusterNamespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cluster %s cannot be reached in your name: its impersonator's Secret must be in namespace %s", cluster.Name, names.ClusterNamespace))
	}
	secret, err := d.secret(ref.Namespace, ref.Name)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if secret == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("cluster %s cannot be reached in your name: there is no Secret %s/%s", cluster.Name, ref.Namespace, ref.Name))
	}
	return secret, nil
}

func (d *Directory) connect(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.opened[cluster.Name]; c != nil {
		if c.Apply(cluster, secret) {
			return c, nil
		}
		c.close()
	}
	connected, err := d.open(cluster, secret)
	if err != nil {
		return nil, err
	}
	c := &connection{MemberConnection: connected}
	if c.base, err = url.Parse(connected.Config().Host); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if c.requests, err = connected.Transport(true); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if c.upgrades, err = connected.Transport(false); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	d.opened[cluster.Name] = c
	return c, nil
}

func (d *Directory) open(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*fleet.MemberConnection, error) {
	if secret == nil {
		return fleet.ConnectThrough(cluster.Name, d.Dial), nil
	}
	return fleet.Connect(cluster, secret)
}
