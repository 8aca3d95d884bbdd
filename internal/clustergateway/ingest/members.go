package ingest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/membership"
)

// Times are intervals and timeouts.
type Times struct {
	// StaleAfter is how long the objects of a member that cannot be followed are shown.
	StaleAfter time.Duration
	// RemovedAfter is how long those of a Cluster are shown that is no longer there: it may be registered again.
	RemovedAfter time.Duration
	// Probe and ProbeTimeout are the interval and timeout of health probes.
	Probe, ProbeTimeout time.Duration
}

// Options configure Members.
type Options struct {
	// Hub has the Clusters and the credentials for them.
	Hub *rest.Config
	// Templates is the gateway's /federation, or nil.
	Templates *rest.Config
	// Clusters selects the members to show by the labels of their Clusters; nil selects all. Of the others only metadata is watched.
	Clusters labels.Selector
	// Kinds are the resources to watch.
	Kinds []Kind
	// Choices returns the kinds that are watched in a member besides, each once; it may be nil. Choose applies a change of them.
	Choices func(*clusterv1alpha1.Cluster) []Choice
	// Open returns the feed for the objects of such a kind, once its resource is known.
	Open func(cluster string, kind schema.GroupVersionKind, resource metav1.APIResource) (Feed, error)
	// Release is called when such a feed is used no more.
	Release func(kind schema.GroupVersionKind)
	// Progressed is called when the Progress of a choice has changed. It must not block.
	Progressed func()
	// Dial connects to a member through a tunnel of its agent. If it is nil, members without credentials are not shown.
	Dial func(ctx context.Context, cluster string) (net.Conn, error)
	// Times are intervals and timeouts.
	Times Times
}

// Kind is a resource to watch.
type Kind struct {
	// Path is the path of the collection, such as /api/v1/pods.
	Path string
	// Templates is set if it is also watched at the gateway.
	Templates bool
	// Feed returns the feed of a member; that of the templates is named "".
	Feed func(cluster string) Feed
}

// Members watches the members of a federation.
type Members struct {
	options           Options
	clusters, secrets cache.SharedIndexInformer

	mu        sync.Mutex
	ctx       context.Context // of Run
	began     time.Time       // of Run
	sources   map[string]*source
	templates *source
	ready     bool
	shown     chan struct{} // closed when the set of members that are shown changes
}

// New returns Members, which do nothing before Run.
func New(options Options) (*Members, error) {
	m := &Members{options: options, sources: map[string]*source{}, shown: make(chan struct{})}
	scheme := runtime.NewScheme()
	if err := clusterv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(options.Hub)
	config.APIPath = "/apis"
	config.GroupVersion = &clusterv1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	objects, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	client, err := kubernetes.NewForConfig(options.Hub)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	m.clusters = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(objects, "clusters", "", fields.Everything()), &clusterv1alpha1.Cluster{}, 0, nil)
	m.secrets = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "secrets", names.ClusterNamespace, fields.Everything()), &corev1.Secret{}, 0, nil)
	if _, err := m.clusters.AddEventHandler(handler(func(name string) { m.reconcile(name) })); err != nil {
		return nil, err
	}
	_, err = m.secrets.AddEventHandler(handler(m.reconcileFor))
	return m, err
}

func handler(changed func(name string)) cache.ResourceEventHandler {
	notify := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			changed(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, object any) { notify(object) }, DeleteFunc: notify}
}

// Run watches the members until the context ends.
func (m *Members) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx, m.began = ctx, time.Now()
	m.mu.Unlock()
	if m.options.Templates != nil {
		if err := m.watchTemplates(ctx); err != nil {
			return err
		}
	}
	go m.secrets.RunWithContext(ctx)
	go func() {
		// Connections to clusters need their credentials.
		if cache.WaitForCacheSync(ctx.Done(), m.secrets.HasSynced) {
			m.clusters.RunWithContext(ctx)
		}
	}()
	sweep, mark := time.NewTicker(m.options.Times.Probe), time.NewTicker(markInterval)
	defer sweep.Stop()
	defer mark.Stop()
	for {
		select {
		case <-ctx.Done():
			m.stop()
			return nil
		case <-sweep.C:
			m.sweep()
		case <-mark.C:
			m.mark()
		}
	}
}

// At most markBatch objects per markInterval change their stale mark. A member with tens of thousands of objects is lost in one moment;
// the events for them must not delay those of other members, nor push them out of the history.
const (
	markInterval = 100 * time.Millisecond
	markBatch    = 256
)

// mark updates the stale marks of some objects.
func (m *Members) mark() {
	left := markBatch
	for _, f := range m.shownFeeds() { // the order is random, which is fair
		if left -= f.mark(left); left <= 0 {
			return
		}
	}
}

func (m *Members) shownFeeds() []*feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*feed
	for _, s := range m.sources {
		if !s.foreign {
			all = append(all, s.all()...)
		}
	}
	if m.templates != nil {
		all = append(all, m.templates.feeds...)
	}
	return all
}

func (m *Members) watchTemplates(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.templates = m.newSource("", func(k Kind) bool { return k.Templates })
	return m.templates.start(ctx, m.options.Templates)
}

func (m *Members) newSource(name string, wanted func(Kind) bool) *source {
	s := &source{name: name, times: m.options.Times}
	for _, kind := range m.options.Kinds {
		if wanted(kind) {
			s.feeds = append(s.feeds, &feed{to: kind.Feed(name)})
			s.paths = append(s.paths, kind.Path)
		}
	}
	return s
}

// Ready reports whether each member has been listed once, or could not be.
func (m *Members) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready || !m.clusters.HasSynced() || !m.secrets.HasSynced() {
		return m.ready
	}
	for _, object := range m.clusters.GetStore().List() {
		cluster, ok := object.(*clusterv1alpha1.Cluster)
		if !ok {
			continue
		}
		if s := m.sources[cluster.Name]; s == nil || (s.current != nil && !s.listed()) || m.awaits(s, cluster) {
			return false
		}
	}
	if m.templates != nil && !m.templates.listed() {
		return false
	}
	m.ready = true
	return true
}

// tunnelsWithin is how long after a start the agents of members are waited for, which open their tunnels again.
const tunnelsWithin = 20 * time.Second

// awaits reports whether the agent of a member, which is said to be healthy, may still open a tunnel: without it the objects of the member would look
// deleted to clients that come from another replica.
func (m *Members) awaits(s *source, cluster *clusterv1alpha1.Cluster) bool {
	return fleet.Tunnelled(cluster, cluster.Spec.SecretRef) && s.current != nil && meta.IsStatusConditionTrue(cluster.Status.Conditions, names.ClusterReady) &&
		time.Since(m.began) < tunnelsWithin && !s.followed()
}

// Client returns the connection to a member; ok is false for a member that is not watched.
func (m *Members) Client(cluster string) (target Target, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sources[cluster]
	if s == nil || s.current == nil {
		return Target{}, false
	}
	return Target{Client: s.current.client, Base: s.current.base}, true
}

// Names returns the names of the members that are watched and shown.
func (m *Members) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]string, 0, len(m.sources))
	for name, s := range m.sources {
		if s.current != nil && !s.foreign {
			all = append(all, name)
		}
	}
	return all
}

// Clusters returns the Clusters whose members are shown.
func (m *Members) Clusters() []*clusterv1alpha1.Cluster {
	var all []*clusterv1alpha1.Cluster
	for _, object := range m.clusters.GetStore().List() {
		if cluster, ok := object.(*clusterv1alpha1.Cluster); ok && m.selects(cluster) {
			all = append(all, cluster)
		}
	}
	return all
}

// Shown returns the members whose objects are shown, and a channel that is closed when this changes. If all is set, all members are shown.
func (m *Members) Shown() (clusters []string, all bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.options.Clusters == nil || m.options.Clusters.Empty() {
		return nil, true, m.shown
	}
	clusters = []string{""} // the templates, where there are any
	for name, s := range m.sources {
		if !s.foreign {
			clusters = append(clusters, name)
		}
	}
	return clusters, false, m.shown
}

func (m *Members) selects(cluster *clusterv1alpha1.Cluster) bool {
	return m.options.Clusters == nil || m.options.Clusters.Matches(labels.Set(cluster.Labels))
}

// reconcileFor reconciles the members whose credentials have changed.
func (m *Members) reconcileFor(secret string) {
	for _, object := range m.clusters.GetStore().List() {
		cluster, ok := object.(*clusterv1alpha1.Cluster)
		if ok && cluster.Spec.SecretRef != nil && cluster.Spec.SecretRef.Namespace+"/"+cluster.Spec.SecretRef.Name == secret {
			m.reconcile(cluster.Name)
		}
	}
}

// reconcile watches a member according to its Cluster.
func (m *Members) reconcile(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	object, found, err := m.clusters.GetStore().GetByKey(name)
	cluster, ok := object.(*clusterv1alpha1.Cluster)
	if err != nil || !found || !ok {
		m.leave(name)
		return
	}
	s, foreign := m.sources[name], !m.selects(cluster)
	if s != nil && s.foreign != foreign {
		// The cached objects are of the other form: whole, or metadata only.
		m.dismiss(s)
		s = nil
	}
	if s == nil {
		s = m.newSource(name, func(Kind) bool { return true })
		s.foreign = foreign
		m.sources[name] = s
		close(m.shown)
		m.shown = make(chan struct{})
	}
	s.left, s.cluster = time.Time{}, cluster
	if err := m.follow(s, cluster); err != nil {
		if cluster.Spec.SyncMode != clusterv1alpha1.Pull || cluster.Spec.SecretRef != nil { // the others cannot be reached
			klog.FromContext(m.ctx).Error(err, "cannot watch a member", "cluster", name)
		}
		for _, f := range s.all() {
			f.lost(time.Now())
		}
	}
	m.choose(s)
}

// follow connects a source to its Cluster, unless it already is.
func (m *Members) follow(s *source, cluster *clusterv1alpha1.Cluster) error {
	secret, err := m.secret(cluster)
	if err != nil {
		return err
	}
	if s.current != nil && s.uid == cluster.UID && s.connection.Apply(cluster, secret) {
		return nil
	}
	connection, config, err := m.connect(cluster, secret)
	if err != nil {
		return err
	}
	if err := s.start(m.ctx, rest.AddUserAgent(config, "cluster-gateway")); err != nil {
		return err
	}
	s.connection, s.uid = connection, cluster.UID
	return nil
}

// connect returns a connection to a member and its configuration. In a member without credentials the identity is the same, but its agent grants it.
func (m *Members) connect(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*fleet.MemberConnection, *rest.Config, error) {
	if secret == nil {
		connection := fleet.ConnectThrough(cluster.Name, m.options.Dial)
		config := connection.Config()
		config.Impersonate.UserName = membership.StatusUser(cluster.Name)
		return connection, config, nil
	}
	connection, err := fleet.Connect(cluster, secret)
	if err != nil {
		return nil, nil, err
	}
	return connection, connection.Config(), nil
}

// secret returns the credentials for a member; nil if it is reached through a tunnel.
func (m *Members) secret(cluster *clusterv1alpha1.Cluster) (*corev1.Secret, error) {
	ref := cluster.Spec.SecretRef
	if fleet.Tunnelled(cluster, ref) && m.options.Dial != nil {
		return nil, nil
	}
	if ref == nil {
		return nil, fmt.Errorf("cluster %s has no spec.secretRef", cluster.Name)
	}
	object, _, err := m.secrets.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil {
		return nil, err
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("cluster %s: Secret %s/%s not found", cluster.Name, ref.Namespace, ref.Name)
	}
	return secret, nil
}

// leave handles a deleted Cluster. Its objects stay for a while: if it is registered again, watchers see only the differences.
func (m *Members) leave(name string) {
	s := m.sources[name]
	if s == nil || !s.left.IsZero() {
		return
	}
	s.left = time.Now()
	s.stop()
	if len(s.chosen) > 0 {
		m.options.Progressed()
	}
	for _, f := range s.all() {
		f.lost(s.left)
	}
}

// dismiss stops watching a member and removes its objects.
func (m *Members) dismiss(s *source) {
	s.stop()
	for _, f := range s.feeds {
		f.forget()
	}
	for kind := range s.chosen {
		m.drop(s, kind)
	}
}

// sweep removes the objects of members that are no longer watched.
func (m *Members) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.sources {
		if s.current != nil {
			continue // a running source expires its own objects
		}
		if s.left.IsZero() {
			for _, f := range s.all() {
				s.expire(m.ctx, f, "")
			}
			continue
		}
		if time.Since(s.left) >= m.options.Times.RemovedAfter {
			m.dismiss(s)
			delete(m.sources, name)
		}
	}
}

// stop ends all streams.
func (m *Members) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sources {
		s.stop()
	}
	if m.templates != nil {
		m.templates.stop()
	}
}
