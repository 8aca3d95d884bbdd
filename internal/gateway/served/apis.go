package served

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	cellplanev1alpha1 "github.com/cellplane/cellplane/api/cellplane/v1alpha1"
	"github.com/cellplane/cellplane/internal/gateway/keep"
)

// APIs follows the ServedAPIs of the hub.
type APIs struct {
	informer cache.SharedIndexInformer
	kept     *keep.Value[[]cellplanev1alpha1.ServedAPI]

	mu       sync.Mutex
	live     atomic.Pointer[Limits]
	fromKept atomic.Pointer[Limits]
	streams  streams
}

// NewAPIs returns APIs that follow the hub. If dir is not empty, they are kept there for a start while the hub is down. client serves
// Cellplane's own kinds.
func NewAPIs(client rest.Interface, dir string) (*APIs, error) {
	a := &APIs{kept: keep.NewValue[[]cellplanev1alpha1.ServedAPI](dir, "served.json")}
	a.informer = cache.NewSharedIndexInformer(source(client), &cellplanev1alpha1.ServedAPI{}, 0, nil)
	_, err := a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.reload() },
		UpdateFunc: func(any, any) { a.reload() },
		DeleteFunc: func(any) { a.reload() },
	})
	return a, err
}

// source lists and watches ServedAPIs. A hub that does not have the kind has none: it is older than the gateway.
func source(client rest.Interface) *cache.ListWatch {
	source := cache.NewListWatchFromClient(client, "servedapis", "", fields.Everything())
	list := source.ListWithContextFunc
	source.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		found, err := list(ctx, options)
		if apierrors.IsNotFound(err) {
			return &cellplanev1alpha1.ServedAPIList{}, nil
		}
		return found, err
	}
	return source
}

// Run follows the hub until the context ends.
func (a *APIs) Run(ctx context.Context) {
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), a.informer.HasSynced) {
			a.reload() // without objects there was no event
		}
	}()
	a.informer.RunWithContext(ctx)
}

// Known reports whether the ServedAPIs are known, from the hub or from disk.
func (a *APIs) Known() bool { return a.limits() != nil }

// limits returns the limits in force, nil if they are not known.
func (a *APIs) limits() *Limits {
	if live := a.live.Load(); live != nil {
		return live
	}
	if loaded := a.fromKept.Load(); loaded != nil {
		return loaded
	}
	if kept := a.kept.Kept(); kept != nil {
		a.fromKept.CompareAndSwap(nil, NewLimits(*kept))
	}
	return a.fromKept.Load()
}

// reload publishes the objects in the cache, and ends the streams that they do not allow.
func (a *APIs) reload() {
	if !a.informer.HasSynced() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	apis := []cellplanev1alpha1.ServedAPI{}
	for _, object := range a.informer.GetStore().List() {
		if api, ok := object.(*cellplanev1alpha1.ServedAPI); ok {
			apis = append(apis, cellplanev1alpha1.ServedAPI{ObjectMeta: metav1.ObjectMeta{Name: api.Name}, Spec: api.Spec})
		}
	}
	slices.SortFunc(apis, func(x, y cellplanev1alpha1.ServedAPI) int { return strings.Compare(x.Name, y.Name) })
	limits := NewLimits(apis)
	a.live.Store(limits)
	a.streams.end(limits)
	if err := a.kept.Save(apis); err != nil {
		klog.Background().Error(err, "keeping the ServedAPIs failed, a restart will need the hub")
	}
}
