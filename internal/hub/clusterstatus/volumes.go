package clusterstatus

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/simulate"
)

// followVolumes updates a model with the location of volumes until the context ends. If the identity may not read volumes,
// they stay unknown.
func followVolumes(ctx context.Context, client kubernetes.Interface, model *simulate.Model) {
	volumes := client.CoreV1().PersistentVolumes()
	source := fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return volumes.List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return volumes.Watch(ctx, options)
		},
	}
	sink := &modelSink[*corev1.PersistentVolume]{set: model.SetVolume, remove: model.RemoveVolume, keep: model.KeepVolumes}
	fleet.Watch(ctx, source, sink, func(err error) {
		klog.FromContext(ctx).V(1).Info("watching volumes failed, will retry", "err", err)
	})
}

// followStorageClasses updates a model with where volumes may be created until the context ends. If the identity may not read
// storage classes, volumes may be created everywhere.
func followStorageClasses(ctx context.Context, client kubernetes.Interface, model *simulate.Model) {
	classes := client.StorageV1().StorageClasses()
	source := fleet.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return classes.List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return classes.Watch(ctx, options)
		},
	}
	sink := &modelSink[*storagev1.StorageClass]{set: model.SetStorageClass, remove: model.RemoveStorageClass, keep: model.KeepStorageClasses}
	fleet.Watch(ctx, source, sink, func(err error) {
		klog.FromContext(ctx).V(1).Info("watching storage classes failed, will retry", "err", err)
	})
}

// modelSink passes objects to a model. It implements fleet.Sink.
type modelSink[T metav1.Object] struct {
	set    func(T)
	remove func(name string)
	keep   func(names map[string]bool)
	seen   map[string]bool // in the current list
}

// Set implements fleet.Sink.
func (s *modelSink[T]) Set(obj runtime.Object) {
	object, ok := obj.(T)
	if !ok {
		return
	}
	if s.seen != nil {
		s.seen[object.GetName()] = true
	}
	s.set(object)
}

// Unset implements fleet.Sink.
func (s *modelSink[T]) Unset(obj runtime.Object) {
	if object, ok := obj.(T); ok {
		s.remove(object.GetName())
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
