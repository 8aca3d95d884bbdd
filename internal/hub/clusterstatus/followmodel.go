package clusterstatus

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/simulate"
)

// followModel updates a model with volumes, storage classes and quotas until the context ends. What the identity may not read stays unknown:
// volumes can be reached from everywhere, and quotas do not count.
func followModel(ctx context.Context, client kubernetes.Interface, model *simulate.Model) {
	var all sync.WaitGroup
	all.Go(func() {
		sink := &modelSink[*corev1.PersistentVolume]{set: model.SetVolume, remove: model.RemoveVolume, keep: model.KeepVolumes}
		followAll(ctx, "volumes", client.CoreV1().PersistentVolumes(), sink)
	})
	all.Go(func() {
		sink := &modelSink[*storagev1.StorageClass]{set: model.SetStorageClass, remove: model.RemoveStorageClass, keep: model.KeepStorageClasses}
		followAll(ctx, "storage classes", client.StorageV1().StorageClasses(), sink)
	})
	all.Go(func() {
		sink := &modelSink[*corev1.ResourceQuota]{set: model.SetQuota, remove: model.RemoveQuota, keep: model.KeepQuotas}
		followAll(ctx, "quotas", client.CoreV1().ResourceQuotas(metav1.NamespaceAll), sink)
	})
	all.Wait()
}

// objectSource lists and watches the objects of a kind.
type objectSource[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// followAll passes all objects of a kind to a sink until the context ends.
func followAll[L runtime.Object](ctx context.Context, what string, objects objectSource[L], sink fleet.Sink) {
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return objects.List(ctx, options)
	}
	fleet.Watch(ctx, fleet.Source{List: list, Watch: objects.Watch}, sink, func(err error) {
		klog.FromContext(ctx).V(1).Info("watching "+what+" failed, will retry", "err", err)
	})
}

// modelSink passes objects to a model. It implements fleet.Sink.
type modelSink[T metav1.Object] struct {
	set    func(T)
	remove func(key string)
	keep   func(keys map[string]bool)
	seen   map[string]bool // in the current list
}

// keyOf returns the name of an object, with its namespace if it has one.
func keyOf(object metav1.Object) string { return cache.MetaObjectToName(object).String() }

// Set implements fleet.Sink.
func (s *modelSink[T]) Set(obj runtime.Object) {
	object, ok := obj.(T)
	if !ok {
		return
	}
	if s.seen != nil {
		s.seen[keyOf(object)] = true
	}
	s.set(object)
}

// Unset implements fleet.Sink.
func (s *modelSink[T]) Unset(obj runtime.Object) {
	if object, ok := obj.(T); ok {
		s.remove(keyOf(object))
	}
}

// Relist implements fleet.Sink.
func (s *modelSink[T]) Relist() func(string) {
	s.seen = map[string]bool{}
	return func(string) {
		s.keep(s.seen)
		s.seen = nil
	}
}
