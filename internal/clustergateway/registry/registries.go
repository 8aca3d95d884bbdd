package registry

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/cellplane/cellplane/api/search/v1alpha1"
	"github.com/cellplane/cellplane/internal/clustergateway/index"
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
)

// reportInterval is the shortest interval between two reports of progress.
const reportInterval = time.Second

// Registries watches the ResourceRegistries of the hub. Create it with New.
type Registries struct {
	// Clusters returns the clusters that are shown, and Progress how far what is selected in them is.
	Clusters func() []*clusterv1alpha1.Cluster
	Progress func() []ingest.Progress
	// Indexes returns how far indexes are.
	Indexes func() []index.Progress
	// Plan is called with what is to be indexed, before a selection applies: what is no longer indexed is left as it is, although its objects
	// leave the cache.
	Plan func([]index.Plan)
	// Selected is called when Choices has changed, and when the progress has.
	Selected func()

	client   rest.Interface
	informer cache.SharedIndexInformer
	// cached and indexed are the types of the conditions.
	cached, indexed string
	changed         chan struct{} // some ResourceRegistry has changed
	progress        chan struct{} // the progress has changed

	mu        sync.Mutex
	selection *Selection

	reported map[string]report // by name, as last written by us
}

// report is what is reported of a ResourceRegistry. The zero value of indexed means that it has no backend store.
type report struct{ cached, indexed metav1.Condition }

// New returns Registries. shown is the selector of the clusters that this cluster-gateway shows: each share reports in a condition of its
// own.
func New(hub *rest.Config, shown labels.Selector) (*Registries, error) {
	scheme := runtime.NewScheme()
	if err := searchv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(hub)
	config.APIPath = "/apis"
	config.GroupVersion = &searchv1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client of the hub: %w", err)
	}
	r := &Registries{
		client: client, cached: conditionOf("Cached", shown), indexed: conditionOf("Indexed", shown), selection: &Selection{}, reported: map[string]report{},
		changed: make(chan struct{}, 1), progress: make(chan struct{}, 1),
	}
	r.informer = cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "resourceregistries", "", fields.Everything()), &searchv1alpha1.ResourceRegistry{}, 0, nil)
	_, err = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal(r.changed) },
		UpdateFunc: func(before, after any) {
			if was, ok := before.(*searchv1alpha1.ResourceRegistry); ok {
				if is, ok := after.(*searchv1alpha1.ResourceRegistry); ok && was.Generation == is.Generation && was.DeletionTimestamp == nil && is.DeletionTimestamp == nil {
					return // its status
				}
			}
			signal(r.changed)
		},
		DeleteFunc: func(any) { signal(r.changed) },
	})
	return r, err
}

// conditionOf returns the type of a condition in which a share reports.
func conditionOf(name string, shown labels.Selector) string {
	if shown == nil || shown.Empty() {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(shown.String())) // never fails
	return fmt.Sprintf("%s-%08x", name, hash.Sum32())
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Progressed notes that the progress has changed.
func (r *Registries) Progressed() { signal(r.progress) }

// Choices returns what is selected in a cluster.
func (r *Registries) Choices(cluster *clusterv1alpha1.Cluster) []ingest.Choice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.selection.Choices(cluster)
}

// Synced reports whether the ResourceRegistries are known.
func (r *Registries) Synced() bool { return r.informer.HasSynced() }

// Run watches the ResourceRegistries until the context ends.
func (r *Registries) Run(ctx context.Context) {
	go r.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), r.informer.HasSynced) {
		return
	}
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	r.reselect()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.reselect()
			signal(r.progress)
			continue
		case <-ticker.C:
		}
		select {
		case <-r.progress:
			r.Plan(r.current().Plans(r.Clusters()))
			r.Selected()
			r.report(ctx)
		default:
		}
	}
}

func (r *Registries) current() *Selection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.selection
}

func (r *Registries) reselect() {
	selection := Select(r.all())
	r.Plan(selection.Plans(r.Clusters()))
	r.mu.Lock()
	r.selection = selection
	r.mu.Unlock()
	r.Selected()
}

func (r *Registries) all() []*searchv1alpha1.ResourceRegistry {
	var all []*searchv1alpha1.ResourceRegistry
	for _, object := range r.informer.GetStore().List() {
		if registry, ok := object.(*searchv1alpha1.ResourceRegistry); ok {
			all = append(all, registry)
		}
	}
	return all
}

// report writes the conditions that have changed. Replicas report the same, except for moments: each writes when what it would report
// changes, not when another has written something else.
func (r *Registries) report(ctx context.Context) {
	clusters := r.Clusters()
	cached := r.current().Conditions(r.cached, clusters, r.Progress())
	indexed := r.current().Indexed(r.indexed, clusters, r.Indexes())
	for name := range r.reported {
		if _, still := cached[name]; !still {
			delete(r.reported, name)
		}
	}
	for _, registry := range r.all() {
		now := report{cached[registry.Name], indexed[registry.Name]}
		if now.cached.Type == "" {
			continue
		}
		now.cached.ObservedGeneration = registry.Generation
		if now.indexed.Type != "" {
			now.indexed.ObservedGeneration = registry.Generation
		}
		if r.reported[registry.Name] == now {
			continue
		}
		if err := r.write(ctx, registry.DeepCopy(), now); err != nil {
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "cannot report the state of a ResourceRegistry", "resourceRegistry", registry.Name)
			}
			signal(r.progress) // again at the next tick
			continue
		}
		r.reported[registry.Name] = now
	}
}

func (r *Registries) write(ctx context.Context, registry *searchv1alpha1.ResourceRegistry, now report) error {
	conditions, before := &registry.Status.Conditions, slices.Clone(registry.Status.Conditions)
	set(conditions, now.cached)
	if now.indexed.Type == "" {
		meta.RemoveStatusCondition(conditions, r.indexed)
	} else {
		set(conditions, now.indexed)
	}
	if slices.Equal(before, *conditions) {
		return nil
	}
	return r.client.Put().Resource("resourceregistries").Name(registry.Name).SubResource("status").Body(registry).Do(ctx).Error()
}

// set sets a condition, unless it is the same.
func set(conditions *[]metav1.Condition, condition metav1.Condition) {
	if !slices.ContainsFunc(*conditions, func(c metav1.Condition) bool { return same(c, condition) }) {
		meta.SetStatusCondition(conditions, condition)
	}
}

func same(a, b metav1.Condition) bool {
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}
