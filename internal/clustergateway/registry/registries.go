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
	"github.com/cellplane/cellplane/internal/clustergateway/ingest"
)

// reportInterval is the shortest interval between two reports of progress.
const reportInterval = time.Second

// Registries watches the ResourceRegistries of the hub. Create it with New.
type Registries struct {
	// Clusters returns the clusters that are shown, and Progress how far what is selected in them is.
	Clusters func() []*clusterv1alpha1.Cluster
	Progress func() []ingest.Progress
	// Selected is called when Choices has changed, and when the progress has.
	Selected func()

	client    rest.Interface
	informer  cache.SharedIndexInformer
	condition string
	changed   chan struct{} // some ResourceRegistry has changed
	progress  chan struct{} // the progress has changed

	mu        sync.Mutex
	selection *Selection

	reported map[string]metav1.Condition // by name, as last written by us
}

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
		client: client, condition: conditionOf(shown), selection: &Selection{}, reported: map[string]metav1.Condition{},
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

// conditionOf returns the type of the condition in which a share reports.
func conditionOf(shown labels.Selector) string {
	if shown == nil || shown.Empty() {
		return "Cached"
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(shown.String())) // never fails
	return fmt.Sprintf("Cached-%08x", hash.Sum32())
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
	conditions := r.current().Conditions(r.condition, r.Clusters(), r.Progress())
	for name := range r.reported {
		if _, still := conditions[name]; !still {
			delete(r.reported, name)
		}
	}
	for _, registry := range r.all() {
		condition, found := conditions[registry.Name]
		condition.ObservedGeneration = registry.Generation
		if !found || r.reported[registry.Name] == condition {
			continue
		}
		if err := r.write(ctx, registry.DeepCopy(), condition); err != nil {
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "cannot report the state of a ResourceRegistry", "resourceRegistry", registry.Name)
			}
			signal(r.progress) // again at the next tick
			continue
		}
		r.reported[registry.Name] = condition
	}
}

func (r *Registries) write(ctx context.Context, registry *searchv1alpha1.ResourceRegistry, condition metav1.Condition) error {
	i := slices.IndexFunc(registry.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type })
	if i >= 0 && same(registry.Status.Conditions[i], condition) {
		return nil
	}
	meta.SetStatusCondition(&registry.Status.Conditions, condition)
	return r.client.Put().Resource("resourceregistries").Name(registry.Name).SubResource("status").Body(registry).Do(ctx).Error()
}

func same(a, b metav1.Condition) bool {
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}
