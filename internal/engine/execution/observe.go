package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/cellplane/cellplane/api/names"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
	"github.com/cellplane/cellplane/internal/rollout"
)

// Observed is the cached state of an object in a member. It is immutable, but for what is read later about the same version.
type Observed struct {
	// Work that the object belongs to.
	Work cell.Key
	UID  types.UID
	// Status is the object's status as reflected by the interpreter, nil if it has none.
	Status []byte
	Health workv1alpha1.ResourceHealth
	// Rollout is how far a workload is; nil for kinds whose rollouts are not planned. ShortSince is since when it has had too few available pods; zero if it has enough.
	Rollout    *rollout.Live
	ShortSince time.Time
	// Entry is set if the object is out of the federation's hands.
	Entry *entry.Entry

	version  uint64
	digest   uint64                       // of everything that drift would change
	agreed   string                       // fingerprint of the manifest that the object agrees with
	settled  bool                         // healthy, and all replicas are ready
	looked   atomic.Pointer[rollout.Live] // how far the workload is by its pods, if its status does not tell and they were read
	deleting bool
}

// Agrees reports whether the object agrees with the manifest that has this fingerprint.
func (o *Observed) Agrees(fingerprint string) bool { return o.agreed == fingerprint }

// collection is the cache of our objects of one kind in one member.
type collection struct {
	queue *memberQueue
	gvk   schema.GroupVersionKind

	mu             sync.Mutex
	cancel         context.CancelFunc // ends the watch
	watcher        *watcher           // the current one
	served         fleet.ServedKind
	objects        map[cell.Key]*Observed
	synced         bool
	reinterpretAll bool // the interpreter has changed
}

// watcher feeds a collection; it implements fleet.Sink. A watcher that has been replaced may still be in the middle of a
// list: its events, and above all the objects missing from its list, are ignored.
type watcher struct {
	*collection
	seen map[cell.Key]struct{} // during a list
}

func newCollection(q *memberQueue, gvk schema.GroupVersionKind) *collection {
	return &collection{queue: q, gvk: gvk, objects: map[cell.Key]*Observed{}}
}

// start watches the objects through a connection and replaces an earlier watch.
func (c *collection) start(member *fleet.Member) {
	ctx, cancel := context.WithCancel(member.Context())
	f := c.replaceWatcher(cancel)
	go func() {
		served, ok := find(ctx, member, c.gvk)
		if !ok {
			return
		}
		c.servedAs(served)
		member.Watch(ctx, served.Resource, c.queue.selector(), f)
	}()
}

// servedAs notes how the member serves the kind. Who caches an object that was read or written says so before: the watch may not have begun.
func (c *collection) servedAs(kind fleet.ServedKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = kind
}

// replaceWatcher returns a new current watcher; cancel ends its watch.
func (c *collection) replaceWatcher(cancel context.CancelFunc) *watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel, c.synced, c.watcher = cancel, false, &watcher{collection: c}
	return c.watcher
}

// isCurrent reports whether the watcher has not been replaced.
func (f *watcher) isCurrent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watcher == f
}

// find polls until the member serves the kind.
func find(ctx context.Context, member *fleet.Member, gvk schema.GroupVersionKind) (fleet.ServedKind, bool) {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		if member.Wait(ctx) != nil {
			return fleet.ServedKind{}, false
		}
		_, served, err := member.Resource(ctx, gvk, "")
		if err == nil {
			return served, true
		}
		if !meta.IsNoMatchError(err) {
			member.Report(err)
		}
		select {
		case <-ctx.Done():
			return fleet.ServedKind{}, false
		case <-ticker.C:
		}
	}
}

func (c *collection) get(key cell.Key) (*Observed, string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[key], c.served.Resource.Resource, c.synced
}

// reinterpret makes the next list interpret every object again.
func (c *collection) reinterpret() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reinterpretAll = true
}

// Set caches an object of the member.
func (f *watcher) Set(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok || !f.isCurrent() {
		return
	}
	defer recovered(f.gvk, keyOf(obj.Unstructured))
	f.observe(obj.Unstructured, "", obj.Full)
}

// recovered ends a panic: one object must not stop the watch of the others.
func recovered(gvk schema.GroupVersionKind, object cell.Key) {
	if problem := recover(); problem != nil {
		klog.Background().Error(fmt.Errorf("panic: %v", problem), "recovered from a panic", "kind", gvk, "object", object, "stack", string(debug.Stack()))
	}
}

// Unset removes a deleted object from the cache. If it should exist, it is recreated.
func (f *watcher) Unset(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok || !f.isCurrent() {
		return
	}
	f.forget(keyOf(obj.Unstructured), cell.Version(obj.GetResourceVersion()))
}

func (c *collection) forget(key cell.Key, version uint64) {
	c.mu.Lock()
	observed := c.objects[key]
	if observed == nil || observed.version > version {
		c.mu.Unlock()
		return
	}
	delete(c.objects, key)
	c.mu.Unlock()
	c.queue.works.AddNow(observed.Work)
	c.queue.e.changed(observed.Work)
}

// Relist begins a list; the function ends it and removes objects that are gone.
func (f *watcher) Relist() (done func(resourceVersion string)) {
	f.mu.Lock()
	f.seen = map[cell.Key]struct{}{}
	f.mu.Unlock()
	return func(resourceVersion string) {
		gone, current := f.listed()
		if !current {
			return
		}
		for _, key := range gone {
			f.forget(key, cell.Version(resourceVersion))
		}
		f.queue.enqueueOf(f.gvk)
	}
}

// listed ends a list and returns the cached objects that are missing from it, and whether the watcher is current.
func (f *watcher) listed() (gone []cell.Key, current bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watcher != f {
		return nil, false
	}
	for key := range f.objects {
		if _, there := f.seen[key]; !there {
			gone = append(gone, key)
		}
	}
	f.seen, f.synced, f.reinterpretAll = nil, true, false
	return gone, true
}

// enqueueOf enqueues the Works of a kind, now that all objects of the kind are known.
func (q *memberQueue) enqueueOf(gvk schema.GroupVersionKind) {
	for _, key := range q.e.cell.WorksIn(q.cluster) {
		work := q.e.cell.Works.Get(key)
		if work != nil && slices.ContainsFunc(work.Objects, func(o cell.Object) bool { return o.GroupVersionKind == gvk }) {
			q.works.Add(key)
		}
	}
}

// wrote caches an object as the member returned it. Agreed is the fingerprint of the manifest that it agrees with.
func (c *collection) wrote(obj *unstructured.Unstructured, agreed string) {
	c.observe(obj, agreed, func() (*unstructured.Unstructured, error) { return obj, nil })
}

// observe caches the condensed form of an object. Agreed is the fingerprint of the manifest that the object is known to
// agree with. If it is empty and the object has drifted, the two are compared; full returns the object with its managed
// fields for that.
func (c *collection) observe(obj *unstructured.Unstructured, agreed string, full func() (*unstructured.Unstructured, error)) {
	key, version := keyOf(obj), cell.Version(obj.GetResourceVersion())
	c.mu.Lock()
	before, reinterpretAll := c.objects[key], c.reinterpretAll
	if c.watcher != nil && c.watcher.seen != nil {
		c.watcher.seen[key] = struct{}{}
	}
	c.mu.Unlock()
	if before != nil && before.UID == obj.GetUID() && before.version >= version && agreed == "" && !reinterpretAll {
		return
	}
	now := &Observed{
		Work:    cell.Key{Namespace: cell.Shared(names.ExecutionNamespace(c.queue.cluster)), Name: cell.Shared(obj.GetAnnotations()[names.WorkNameAnnotation])},
		UID:     obj.GetUID(),
		version: version, digest: liveDigest(obj), agreed: agreed, deleting: obj.GetDeletionTimestamp() != nil,
	}
	if open, is := entry.Of(obj.GetAnnotations()); is {
		now.Entry = &open
	}
	same := before != nil && before.UID == now.UID && before.digest == now.digest
	switch {
	case agreed != "":
	case same && before.agreed != "":
		now.agreed = before.agreed
	default:
		now.agreed = c.compare(full, key, now.Work)
	}
	c.interpret(obj, now, before)
	c.setRollout(obj, now, before)

	c.mu.Lock()
	if current := c.objects[key]; current != nil && current.UID == now.UID && current.version > now.version {
		c.mu.Unlock()
		return
	}
	c.objects[key] = now
	c.mu.Unlock()

	look := now.agreed == "" || now.deleting || now.Entry != nil || before != nil && before.Entry != nil
	if work := c.queue.e.cell.Works.Get(now.Work); work != nil && work.ReportOnly {
		look = !same || now.deleting != before.deleting // also if it agrees again
	}
	if look {
		c.queue.works.Add(now.Work)
	}
	if before == nil || before.Health != now.Health || before.agreed != now.agreed || before.settled != now.settled || !bytes.Equal(before.Status, now.Status) ||
		now.Rollout.Progressed(before.Rollout) {
		c.queue.e.changed(now.Work)
	}
}

// setRollout reads how far a workload is. If an interpreter fails, what was known stays: it is as if the report were late.
func (c *collection) setRollout(obj *unstructured.Unstructured, now, before *Observed) {
	same := before != nil && before.UID == now.UID
	if now.Rollout = rollout.LiveOf(obj); now.Rollout == nil && c.queue.e.interpreter.PlansRollouts(c.gvk) {
		live, err := c.interpretRollout(obj)
		if err != nil && same {
			live = before.Rollout
		}
		if now.Rollout = live; err != nil {
			c.interpretFailed(now.Work, "rollout", names.EventInterpretRolloutFailed, err)
		} else {
			c.interpreted(now.Work, "rollout", names.EventInterpretRolloutSucceed, "the rollout in the member was read", false)
		}
	}
	switch {
	case now.Rollout == nil || !now.Rollout.Short():
	case same && !before.ShortSince.IsZero():
		now.ShortSince = before.ShortSince
	default:
		now.ShortSince = time.Now()
	}
}

// interpretRollout has an interpreter read how far a workload is, nil if it is not updated step by step.
func (c *collection) interpretRollout(obj *unstructured.Unstructured) (*rollout.Live, error) {
	says, err := c.queue.e.interpreter.Rollout(context.Background(), obj)
	if says == nil || err != nil {
		return nil, err
	}
	return rollout.InterpretedLive(obj, says)
}

// compare returns the fingerprint of the Work's manifest if the object agrees with it and the manifest is in memory.
func (c *collection) compare(full func() (*unstructured.Unstructured, error), object, of cell.Key) string {
	e := c.queue.e
	work := e.cell.Works.Get(of)
	if work == nil || work.Deleting {
		return ""
	}
	i := slices.IndexFunc(work.Objects, func(o cell.Object) bool { return o.GroupVersionKind == c.gvk && o.Key == object })
	if i < 0 {
		return ""
	}
	manifests, known := e.cell.Manifests.Get(work)
	if !known || i >= len(manifests) {
		return ""
	}
	obj, err := full()
	if err != nil {
		return ""
	}
	desired, err := c.queue.manifest(work, manifests[i])
	if err != nil || !mayUpdate(obj, desired) {
		return ""
	}
	if _, changed, err := c.queue.merge(context.Background(), obj, desired); err != nil || changed {
		return ""
	}
	if len(work.Objects) == 1 {
		e.cell.Manifests.Forget(of) // not needed any more
	}
	return work.Objects[i].Fingerprint
}

// interpret sets status and health. If the interpreter fails, the status stays as it was.
func (c *collection) interpret(obj *unstructured.Unstructured, now, before *Observed) {
	e := c.queue.e
	ctx := context.Background()
	status, err := e.interpreter.ReflectStatus(ctx, obj)
	if err != nil {
		c.interpretFailed(now.Work, "reflect", names.EventReflectStatusFailed, err)
		if before != nil {
			now.Status = before.Status
		}
	} else if status != nil {
		now.Status = cell.Status(cell.Canonical(status.Raw))
		c.interpreted(now.Work, "reflect", names.EventReflectStatusSucceed, "the status in the member was reflected", before != nil && string(before.Status) != string(now.Status))
	}
	health, err := e.interpreter.Health(ctx, obj)
	if err != nil {
		c.interpretFailed(now.Work, "health", names.EventInterpretHealthFailed, err)
		health = workv1alpha2.ResourceUnknown
	} else {
		c.interpreted(now.Work, "health", names.EventInterpretHealthSucceed, "it is "+string(health), before != nil && string(before.Health) != string(health))
	}
	now.Health = workv1alpha1.ResourceHealth(health)
	now.settled = now.Health == workv1alpha1.ResourceHealthy && replicasReady(now.Status)
}

func (c *collection) interpreted(key cell.Key, aspect, reason, message string, changed bool) {
	if work := c.queue.e.cell.Works.Get(key); work != nil {
		c.queue.e.recorder.Also(events.OfWork(work), aspect, reason, message, changed)
	}
}

func (c *collection) interpretFailed(key cell.Key, aspect, reason string, err error) {
	if work := c.queue.e.cell.Works.Get(key); work != nil {
		c.queue.e.recorder.Failed(events.OfWork(work), aspect, reason, err.Error())
	}
	klog.Background().V(2).Info("cannot interpret an object", "work", key, "err", err)
}

// replicasReady reports whether a status, if it counts replicas, counts all of them as ready. It only decides whether
// the status is written at once or debounced.
func replicasReady(status []byte) bool {
	var counts struct {
		Replicas, ReadyReplicas, AvailableReplicas, UpdatedReplicas *int64
		UnavailableReplicas                                         int64
	}
	if len(status) == 0 || json.Unmarshal(status, &counts) != nil || counts.Replicas == nil {
		return true
	}
	if counts.UnavailableReplicas > 0 {
		return false
	}
	for _, count := range []*int64{counts.ReadyReplicas, counts.UpdatedReplicas} {
		if count == nil && *counts.Replicas > 0 || count != nil && *count != *counts.Replicas {
			return false
		}
	}
	return true
}

// liveDigest returns a digest of everything that drift would change. For kinds with a generation, that and the metadata
// are enough.
func liveDigest(obj *unstructured.Unstructured) uint64 {
	digest := xxhash.New()
	write := func(text string) {
		_, _ = digest.WriteString(text) // a hash's writes never fail
		_, _ = digest.Write([]byte{0})
	}
	metadata, _ := obj.Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		entries, _ := metadata[field].(map[string]any)
		keys := make([]string, 0, len(entries))
		for key := range entries {
			if key != revisionAnnotation {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		write(field)
		for _, key := range keys {
			value, _ := entries[key].(string)
			write(key)
			write(value)
		}
	}
	if generation := obj.GetGeneration(); generation > 0 {
		write(strconv.FormatInt(generation, 10))
		return digest.Sum64()
	}
	write(merge.Fingerprint(obj))
	return digest.Sum64()
}

// revisionAnnotation is written by the member's own controller and changes with every rollout.
const revisionAnnotation = "deployment.kubernetes.io/revision"

func keyOf(obj *unstructured.Unstructured) cell.Key {
	return cell.Key{Namespace: cell.Shared(obj.GetNamespace()), Name: cell.Shared(obj.GetName())}
}
