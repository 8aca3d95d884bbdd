package clusterstatus

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/cellplane/cellplane/internal/simulate"
)

// running leaves out pods that have terminated: they use no resources.
var running = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
).String()

// follow watches nodes and pods of a member and updates the ledger until the context ends.
func (l *ledger) follow(ctx context.Context, client kubernetes.Interface) {
	nodes := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Nodes().List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Nodes().Watch(ctx, options)
		},
	}
	pods := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = running
			return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = running
			return client.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
		},
	}
	var all sync.WaitGroup
	all.Go(func() {
		store := l.nodeStore()
		cache.NewReflectorWithOptions(nodes, &corev1.Node{}, store, cache.ReflectorOptions{Name: "nodes"}).RunWithContext(ctx)
	})
	all.Go(func() {
		store := l.podStore()
		cache.NewReflectorWithOptions(pods, &corev1.Pod{}, store, cache.ReflectorOptions{Name: "pods"}).RunWithContext(ctx)
	})
	if l.model != nil {
		all.Go(func() { followModel(ctx, client, l.model) })
	}
	all.Wait()
}

// nodeStore feeds the ledger with nodes, and the model if there is one.
func (l *ledger) nodeStore() *store[*corev1.Node] {
	model := l.model
	if model == nil {
		return &store[*corev1.Node]{put: l.putNode, drop: func(n *corev1.Node) { l.dropNode(n.Name) }, replace: l.replaceNodes, lean: leanNode}
	}
	return &store[*corev1.Node]{
		put:     func(n *corev1.Node) { l.putNode(n); model.SetNode(n) },
		drop:    func(n *corev1.Node) { l.dropNode(n.Name); model.RemoveNode(n.Name) },
		replace: func(all []*corev1.Node) { l.replaceNodes(all); model.ReplaceNodes(all) },
		lean:    simulate.LeanNode,
	}
}

// podStore feeds the ledger with pods, and the model if there is one.
func (l *ledger) podStore() *store[*corev1.Pod] {
	model := l.model
	if model == nil {
		return &store[*corev1.Pod]{put: l.putPod, drop: l.dropPod, replace: l.replacePods, lean: leanPod}
	}
	return &store[*corev1.Pod]{
		put:     func(p *corev1.Pod) { l.putPod(p); model.SetPod(p) },
		drop:    func(p *corev1.Pod) { l.dropPod(p); model.RemovePod(p.UID) },
		replace: func(all []*corev1.Pod) { l.replacePods(all); model.ReplacePods(all) },
		lean:    simulate.LeanPod,
	}
}

// store passes a reflector's objects to functions.
type store[T runtime.Object] struct {
	put     func(T)
	drop    func(T)
	replace func([]T)
	lean    func(T) T
}

// Add implements cache.Store.
func (s *store[T]) Add(object any) error { return s.with(object, s.put) }

// Update implements cache.Store.
func (s *store[T]) Update(object any) error { return s.with(object, s.put) }

// Delete implements cache.Store.
func (s *store[T]) Delete(object any) error { return s.with(object, s.drop) }

// Replace implements cache.Store.
func (s *store[T]) Replace(objects []any, _ string) error {
	typed := make([]T, 0, len(objects))
	for _, object := range objects {
		if err := s.with(object, func(one T) { typed = append(typed, one) }); err != nil {
			return err
		}
	}
	s.replace(typed)
	return nil
}

// Resync does nothing.
func (s *store[T]) Resync() error { return nil }

// Transformer reduces objects before the reflector buffers them.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			return s.lean(typed), nil
		}
		return object, nil
	}
}

func (s *store[T]) with(object any, do func(T)) error {
	typed, ok := object.(T)
	if !ok {
		return fmt.Errorf("got a %T where only %T is expected", object, typed)
	}
	do(typed)
	return nil
}

func leanNode(n *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion},
		Status:     corev1.NodeStatus{Allocatable: n.Status.Allocatable, Conditions: n.Status.Conditions},
	}
}

// leanPod merges all resource requests into those of one container.
func leanPod(p *corev1.Pod) *corev1.Pod {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		Spec: corev1.PodSpec{
			NodeName:   p.Spec.NodeName,
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}},
		},
	}
}
