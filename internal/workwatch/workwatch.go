// Package workwatch tells when the Works of an object change, so that commands which wait for engines need not poll.
package workwatch

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
)

const (
	// review is how often a check is repeated though no Work has changed: the watch may be late, or not allowed.
	review = 2 * time.Second
	// settle is how long a check waits for the changes in other clusters that usually come with the first.
	settle = 30 * time.Millisecond
	// pause is the time between two watches.
	pause = time.Second
)

// Watch follows the Works of a federation.
type Watch struct {
	works dynamic.ResourceInterface

	mu      sync.Mutex
	waiting map[*waiter]struct{}
}

// waiter waits for the Works of a name.
type waiter struct {
	name    string
	changed chan struct{}
	seen    Seen
}

// Seen has the Works that were seen to change, by their namespaces.
type Seen map[string]*unstructured.Unstructured

// New follows the Works of a federation until the context ends.
func New(ctx context.Context, federation dynamic.Interface) *Watch {
	w := &Watch{works: federation.Resource(workv1alpha1.GroupVersion.WithResource("works")), waiting: map[*waiter]struct{}{}}
	go w.run(ctx)
	return w
}

// Until repeats a check until it is true or fails: at once, after changes of the Works of a name, which is the same in all clusters, and now and then.
func (w *Watch) Until(ctx context.Context, name string, check func(context.Context, Seen) (bool, error)) error {
	waits := &waiter{name: name, changed: make(chan struct{}, 1), seen: Seen{}}
	w.mu.Lock()
	w.waiting[waits] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, waits)
	}()
	for {
		done, err := check(ctx, w.seenBy(waits))
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(review):
			w.forget(waits)
			continue
		case <-waits.changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settle):
		}
		select { // what came meanwhile is seen by the next check
		case <-waits.changed:
		default:
		}
	}
}

func (w *Watch) seenBy(waits *waiter) Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(waits.seen)
}

// forget makes the next check read the Works: the watch may have missed something.
func (w *Watch) forget(waits *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(waits.seen)
}

func (w *Watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.follow(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("cannot watch Works, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// follow watches until the watch ends. It begins now: the Works that exist may be very many.
func (w *Watch) follow(ctx context.Context) error {
	now, err := w.works.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("finding the version of Works: %w", err)
	}
	changes, err := w.works.Watch(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for event := range changes.ResultChan() {
		if event.Type == watch.Error {
			return fmt.Errorf("watching Works: %v", event.Object)
		}
		if work, is := event.Object.(*unstructured.Unstructured); is {
			w.note(work, event.Type == watch.Deleted)
		}
	}
	return nil
}

func (w *Watch) note(work *unstructured.Unstructured, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waits := range w.waiting {
		if waits.name != work.GetName() {
			continue
		}
		if delete(waits.seen, work.GetNamespace()); !deleted {
			waits.seen[work.GetNamespace()] = work
		}
		select {
		case waits.changed <- struct{}{}:
		default:
		}
	}
}
