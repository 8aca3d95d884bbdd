package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
)

// Member is an engine's connection to a member cluster: a client for objects of any kind, and the member's health.
type Member struct {
	name       string
	connection *MemberConnection
	objects    dynamic.Interface
	streams    rest.Interface
	kinds      *kinds
	health     *health

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

// OpenMember prepares clients for a member; nothing is sent yet. The caller must Close it.
func OpenMember(ctx context.Context, cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*Member, error) {
	connection, err := Connect(cluster, secret)
	if err != nil {
		return nil, err
	}
	return openMember(ctx, cluster.Name, connection)
}

// OpenOwnMember prepares clients for the member that this program runs in. The caller must Close it.
func OpenOwnMember(ctx context.Context, name string, config *rest.Config) (*Member, error) {
	return openMember(ctx, name, ConnectOwn(config))
}

func openMember(ctx context.Context, name string, connection *MemberConnection) (*Member, error) {
	config := connection.Config()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to cluster %s: %w", name, err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("connecting to cluster %s: %w", name, err)
	}
	finder, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("connecting to cluster %s: %w", name, err)
	}
	m := &Member{name: name, connection: connection, objects: objects, streams: finder.RESTClient(), kinds: newKinds(finder.RESTClient())}
	m.ctx, m.cancel = context.WithCancel(ctx)
	m.health = newHealth(func(ctx context.Context) error {
		return finder.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	return m, nil
}

// Name returns the name of the cluster.
func (m *Member) Name() string { return m.name }

// Close ends all use of the member.
func (m *Member) Close() { m.cancel() }

// Context ends with Close.
func (m *Member) Context() context.Context { return m.ctx }

// Update switches to new credentials and reports whether it could; if not, the member must be reopened.
func (m *Member) Update(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) bool {
	return m.connection.Apply(cluster, secret)
}

// Resource returns the client for objects of a kind and how the member serves it. The error satisfies
// meta.IsNoMatchError if the member does not serve it.
func (m *Member) Resource(ctx context.Context, gvk schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, ServedKind, error) {
	kind, err := m.kinds.find(ctx, gvk)
	if err != nil {
		return nil, kind, fmt.Errorf("discovering in cluster %s how %s is served: %w", m.name, gvk.Kind, err)
	}
	resource := m.objects.Resource(kind.Resource)
	if kind.Namespaced {
		return resource.Namespace(namespace), kind, nil
	}
	return resource, kind, nil
}

// Watch watches the member's objects of a resource that have the labels, and keeps a sink up to date, until the context
// or the member ends. The objects are [Bare].
func (m *Member) Watch(ctx context.Context, resource schema.GroupVersionResource, selector string, sink Sink) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	Watch(ctx, ResourceSource(m.streams, resource, DecodeBare, nil).Labelled(selector), sink, m.Report)
}

// ServedKind is how a member serves a kind.
type ServedKind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// kinds caches how a member serves kinds. It discovers one group and version at a time: a member may have hundreds, and a
// workload needs few.
type kinds struct {
	client rest.Interface
	asking chan struct{} // a semaphore for discovery requests
	mu     sync.Mutex
	known  map[schema.GroupVersion]served
}

func newKinds(client rest.Interface) *kinds {
	return &kinds{client: client, asking: make(chan struct{}, 1), known: map[schema.GroupVersion]served{}}
}

type served struct {
	kinds map[string]ServedKind
	asked time.Time
}

// missingAge is how long it is cached that a member does not serve a kind.
const missingAge = 3 * time.Second

// find returns how a kind is served. Cached kinds are returned at once. One caller at a time asks the member; the others
// wait until their contexts end.
func (k *kinds) find(ctx context.Context, gvk schema.GroupVersionKind) (ServedKind, error) {
	group, fresh := k.look(gvk)
	if !fresh {
		select {
		case k.asking <- struct{}{}:
			defer func() { <-k.asking }()
		case <-ctx.Done():
			return ServedKind{}, ctx.Err()
		}
		group, fresh = k.look(gvk) // the former holder may have asked for the same
	}
	if !fresh {
		var err error
		if group, err = k.ask(ctx, gvk.GroupVersion()); err != nil {
			return ServedKind{}, err
		}
		k.mu.Lock()
		k.known[gvk.GroupVersion()] = group
		k.mu.Unlock()
	}
	if kind, found := group.kinds[gvk.Kind]; found {
		return kind, nil
	}
	return ServedKind{}, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// look returns the cached group and version of a kind, and whether that is fresh enough for the kind.
func (k *kinds) look(gvk schema.GroupVersionKind) (group served, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	group, asked := k.known[gvk.GroupVersion()]
	_, found := group.kinds[gvk.Kind]
	return group, found || asked && time.Since(group.asked) < missingAge
}

// ask asks the member what it serves of a group and version.
func (k *kinds) ask(ctx context.Context, gv schema.GroupVersion) (served, error) {
	path := []string{"/apis", gv.Group, gv.Version}
	if gv.Group == "" {
		path = []string{"/api", gv.Version}
	}
	list := &metav1.APIResourceList{}
	if err := k.client.Get().AbsPath(path...).Do(ctx).Into(list); err != nil && !isNotFound(err) {
		return served{}, err
	}
	group := served{kinds: map[string]ServedKind{}, asked: time.Now()}
	for i := range list.APIResources {
		resource := &list.APIResources[i]
		if !isSubresource(resource.Name) {
			group.kinds[resource.Kind] = ServedKind{Resource: gv.WithResource(resource.Name), Namespaced: resource.Namespaced}
		}
	}
	return group, nil
}

// forget drops a group and version from the cache.
func (k *kinds) forget(gv schema.GroupVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, gv)
}

// Forget drops a group and version from the discovery cache.
func (m *Member) Forget(gv schema.GroupVersion) { m.kinds.forget(gv) }
