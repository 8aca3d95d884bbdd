package clusterstatus

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/simulate"
)

// followVolumes tells a model where volumes are until the context ends. A member whose identity may not read volumes is
// one whose volumes are not known; everything else goes on.
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
	fleet.Follow(ctx, source, &volumeSink{model: model}, func(err error) {
		klog.FromContext(ctx).V(1).Info("cannot follow the volumes, trying again", "err", err)
	})
}

// volumeSink hands volumes to a model. It implements fleet.Sink.
type volumeSink struct {
	model *simulate.Model
	seen  map[string]bool // in the list that is going on
}

// Set implements fleet.Sink.
func (s *volumeSink) Set(obj runtime.Object) {
	volume, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return
	}
	if s.seen != nil {
		s.seen[volume.Name] = true
	}
	s.model.SetVolume(volume)
}

// Unset implements fleet.Sink.
func (s *volumeSink) Unset(obj runtime.Object) {
	if volume, ok := obj.(*corev1.PersistentVolume); ok {
		s.model.RemoveVolume(volume.Name)
	}
}

// Relist implements fleet.Sink.
func (s *volumeSink) Relist() func(string) {
	s.seen = map[string]bool{}
	return func(string) {
		s.model.KeepVolumes(s.seen)
		s.seen = nil
	}
}
