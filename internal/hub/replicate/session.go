package replicate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// The back-off for objects that failed or are blocked.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
	// confirmAfter is when a write is checked that no watch event has confirmed.
	confirmAfter = 2 * time.Second
	servedPoll   = 50 * time.Millisecond
)

// session is one period in which a cell is reachable. Its cache of the cell starts empty.
type session struct {
	*cell
	kinds       []*cellKind
	queue       priorityqueue.PriorityQueue[objectKey]
	inspections turns

	discovering sync.Mutex
	discovered  time.Time                     // when the cell was asked for contents
	contents    []schema.GroupVersionResource // the kinds that namespaces may have content of

	mu        sync.Mutex
	pending   map[objectKey]time.Time // what changed on the hub, and when that was seen
	obstacles map[objectKey]Obstacle
	defaulted map[objectKey]defaulting
	// terminating are the namespaces that terminate in the cell.
	terminating map[string]termination
}

// cellKind is the objects of one kind in the cell.
type cellKind struct {
	rule     *Rule
	informer cache.SharedIndexInformer
	// ready is set once the hub's and the cell's caches have synced. Before, objects would look deleted.
	ready atomic.Bool
	// replayed is set once all of the hub's objects have been queued.
	replayed atomic.Bool
	// heard is the highest resourceVersion that was seen on the hub.
	heard atomic.Pointer[string]
}

// defaulting is what was written to a cell and what the cell stored, if these differ.
type defaulting struct{ written, stored, writtenStatus, storedStatus digest }

func newSession(c *cell) (*session, error) {
	s := &session{
		cell:        c,
		pending:     map[objectKey]time.Time{},
		obstacles:   map[objectKey]Obstacle{},
		defaulted:   map[objectKey]defaulting{},
		terminating: map[string]termination{},
	}
	for _, kind := range c.hub.kinds {
		rule := kind.rule
		informer, err := newInformer(c.client, rule, cache.Indexers{}, func(object *unstructured.Unstructured) (any, error) { return newCopy(rule, object) })
		if err != nil {
			return nil, err
		}
		s.kinds = append(s.kinds, &cellKind{rule: rule, informer: informer})
	}
	s.queue = priorityqueue.New("replicate-"+c.name, func(o *priorityqueue.Opts[objectKey]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[objectKey](firstRetry, lastRetry)
	})
	return s, nil
}

// run copies until ctx ends, and returns when everything has stopped.
func (s *session) run(ctx context.Context) {
	var running sync.WaitGroup
	for number := range s.kinds {
		running.Go(func() { s.watch(ctx, number) })
	}
	for range s.options.Workers {
		running.Go(func() { s.work(ctx) })
	}
	<-ctx.Done()
	s.queue.ShutDown()
	running.Wait()
}

// watch watches one kind, on the hub and in the cell, until ctx ends.
func (s *session) watch(ctx context.Context, number int) {
	here, there := s.kinds[number], s.hub.kinds[number]
	if !s.awaitServed(ctx, here.rule) {
		return
	}
	if _, err := here.informer.AddEventHandler(s.onCell(number)); err != nil {
		klog.FromContext(ctx).Error(err, "watching a cell failed", "resource", here.rule.Resource.Resource)
		return
	}
	var running sync.WaitGroup
	running.Go(func() { here.informer.RunWithContext(ctx) })
	defer running.Wait()
	if !s.awaitSynced(ctx, number) {
		return
	}
	here.ready.Store(true)
	for _, object := range here.informer.GetStore().List() {
		s.enqueue(s.keyOf(number, object))
	}
	registration, err := there.informer.AddEventHandler(s.onHub(number))
	if err != nil {
		return // the hub is no longer watched: everything stops
	}
	defer func() { _ = there.informer.RemoveEventHandler(registration) }()
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		here.replayed.Store(true)
	}
	<-ctx.Done()
}

// awaitServed waits until the cell serves a kind, and reports whether it does.
func (s *session) awaitServed(ctx context.Context, rule *Rule) bool {
	if rule.Definition == "" {
		return true
	}
	all := s.kinds[s.hub.number(definitions)]
	err := wait.PollUntilContextCancel(ctx, servedPoll, true, func(context.Context) (bool, error) {
		definition := all.get("", rule.Definition)
		return definition != nil && definition.Served, nil
	})
	return err == nil
}

// awaitSynced waits for the caches that decisions about a kind depend on.
func (s *session) awaitSynced(ctx context.Context, number int) bool {
	rule := s.kinds[number].rule
	known := []cache.InformerSynced{s.kinds[number].informer.HasSynced, s.hub.kinds[number].informer.HasSynced}
	if rule.Namespaced {
		known = append(known, s.kinds[s.hub.number(namespaces)].informer.HasSynced)
	}
	for _, other := range rule.needs {
		known = append(known, s.hub.kind(other).informer.HasSynced)
	}
	return cache.WaitForCacheSync(ctx.Done(), known...)
}

// onHub queues objects that change on the hub.
func (s *session) onHub(number int) cache.ResourceEventHandler {
	kind := s.kinds[number]
	note := func(object any) {
		source, ok := withoutTombstone(object).(*Source)
		if !ok {
			return
		}
		keys := []objectKey{s.keyOf(number, source)}
		if kind.rule.affects != nil {
			keys = append(keys, kind.rule.affects(s.hub, source)...)
		}
		s.remember(keys)
		kind.hear(source.ResourceVersion)
		for _, key := range keys {
			s.enqueue(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(former, object any) { s.noteFormer(number, former); note(object) },
		DeleteFunc: note,
	}
}

// noteFormer queues the objects that depended on the former version of an object.
func (s *session) noteFormer(number int, former any) {
	source, ok := former.(*Source)
	if affects := s.kinds[number].rule.affects; ok && affects != nil {
		for _, key := range affects(s.hub, source) {
			s.enqueue(key)
		}
	}
}

// onCell queues objects that change in the cell.
func (s *session) onCell(number int) cache.ResourceEventHandler {
	note := func(object any) {
		if copied, ok := withoutTombstone(object).(*Copy); ok {
			s.enqueue(s.keyOf(number, copied))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			note(object)
			if s.kinds[number].rule.isNamespace() {
				s.enqueueContent(object.(*Copy).Name)
			}
		},
		UpdateFunc: func(_, object any) { note(object) },
		DeleteFunc: note,
	}
}

// enqueueContent queues objects that may have waited for a namespace.
func (s *session) enqueueContent(namespace string) {
	for number, kind := range s.hub.kinds {
		if !kind.rule.Namespaced {
			continue
		}
		for _, source := range kind.inNamespace(namespace) {
			s.enqueue(s.keyOf(number, source))
		}
	}
}

func (s *session) keyOf(number int, object any) objectKey {
	switch o := object.(type) {
	case *Source:
		return objectKey{kind: number, namespace: o.Namespace, name: o.Name}
	case *Copy:
		return objectKey{kind: number, namespace: o.Namespace, name: o.Name}
	default:
		return objectKey{kind: number}
	}
}

func withoutTombstone(object any) any {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}

func (s *session) enqueue(key objectKey) { s.queue.AddWithOpts(s.priority(key), key) }

func (s *session) enqueueAfter(key objectKey, delay time.Duration) {
	options := s.priority(key)
	options.After = delay
	s.queue.AddWithOpts(options, key)
}

func (s *session) retry(key objectKey) {
	options := s.priority(key)
	options.RateLimited = true
	s.queue.AddWithOpts(options, key)
}

func (s *session) priority(key objectKey) priorityqueue.AddOpts {
	if s.kinds[key.kind].rule.Urgent {
		return priorityqueue.AddOpts{Priority: ptr.To(1)}
	}
	return priorityqueue.AddOpts{Priority: ptr.To(0)}
}

func (k *cellKind) get(namespace, name string) *Copy {
	return lookup[*Copy](k.informer, namespace, name)
}

// hear notes a resourceVersion. Only the handler of the kind calls it.
func (k *cellKind) hear(version string) {
	if former := k.heard.Load(); former != nil {
		if order, err := resourceversion.CompareResourceVersion(*former, version); err != nil || order >= 0 {
			return
		}
	}
	k.heard.Store(&version)
}
