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
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/fleet"
	"github.com/cellplane/cellplane/internal/merge"
)

// Observed is what is kept of an object in a member. It is not changed once it is kept.
type Observed struct {
	// Work that the object belongs to.
	Work cell.Key
	UID  types.UID
	// Status is what the interpreter reflects of the object's status, nil if it has none.
	Status []byte
	Health workv1alpha1.ResourceHealth

	version  uint64
	digest   uint64 // of everything that a drift would change
	agreed   string // fingerprint of the manifest that the object was found to agree with
	settled  bool   // healthy, and no number in the status is on its way
	deleting bool
}

// collection is the picture of our objects of one kind in one member.
type collection struct {
	lane *lane
	gvk  schema.GroupVersionKind

	mu        sync.Mutex
	cancel    context.CancelFunc // ends following
	follower  *follower          // who is followed through now
	served    fleet.ServedKind
	objects   map[cell.Key]*Observed
	synced    bool
	remeaning bool // what objects mean has changed
}

// follower brings news of the objects into a collection; it implements fleet.Sink. One that another has taken the place of
// may still be in the middle of a list: what it says, and above all what it has not seen, counts no more.
type follower struct {
	*collection
	seen map[cell.Key]struct{} // during a list
}

func newCollection(l *lane, gvk schema.GroupVersionKind) *collection {
	return &collection{lane: l, gvk: gvk, objects: map[cell.Key]*Observed{}}
}

// start follows the objects through a connection, in place of an earlier one.
func (c *collection) start(member *fleet.Member) {
	ctx, cancel := context.WithCancel(member.Context())
	f := c.replaceFollower(cancel)
	go func() {
		served, ok := c.find(ctx, member)
		if !ok {
			return
		}
		c.mu.Lock()
		c.served = served
		c.mu.Unlock()
		member.Follow(ctx, served.Resource, c.lane.selector(), f)
	}()
}

// replaceFollower returns the one whose news count from now on; cancel ends it.
func (c *collection) replaceFollower(cancel context.CancelFunc) *follower {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel, c.synced, c.follower = cancel, false, &follower{collection: c}
	return c.follower
}

// counts tells whether nobody has taken the follower's place.
func (f *follower) counts() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.follower == f
}

// find asks until the member serves the kind.
func (c *collection) find(ctx context.Context, member *fleet.Member) (fleet.ServedKind, bool) {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		if member.Wait(ctx) != nil {
			return fleet.ServedKind{}, false
		}
		_, served, err := member.Resource(ctx, c.gvk, "")
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

// forgetMeaning has the next list ask the interpreter about every object again.
func (c *collection) forgetMeaning() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remeaning = true
}

// Set takes over an object of the member.
func (f *follower) Set(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok || !f.counts() {
		return
	}
	defer func() {
		if problem := recover(); problem != nil { // what one object does to us must not harm the others
			klog.Background().Error(fmt.Errorf("panic: %v", problem), "recovered", "kind", f.gvk, "object", keyOf(obj.Unstructured), "stack", string(debug.Stack()))
		}
	}()
	f.observe(obj.Unstructured, "", obj.Full)
}

// Unset takes note that an object is gone; if it should be there, it is made again.
func (f *follower) Unset(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok || !f.counts() {
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
	c.lane.queue.AddNow(observed.Work)
	c.lane.e.changed(observed.Work)
}

// Relist begins a list; the function ends it and takes note of what is gone.
func (f *follower) Relist() (done func(resourceVersion string)) {
	f.mu.Lock()
	f.seen = map[cell.Key]struct{}{}
	f.mu.Unlock()
	return func(resourceVersion string) {
		gone, counts := f.listed()
		if !counts {
			return
		}
		for _, key := range gone {
			f.forget(key, cell.Version(resourceVersion))
		}
		f.lane.enqueueOf(f.gvk)
	}
}

// listed ends a list and returns what it has not seen, and whether the list counts.
func (f *follower) listed() (gone []cell.Key, counts bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.follower != f {
		return nil, false
	}
	for key := range f.objects {
		if _, there := f.seen[key]; !there {
			gone = append(gone, key)
		}
	}
	f.seen, f.synced, f.remeaning = nil, true, false
	return gone, true
}

// enqueueOf looks at the Works of a kind, now that all objects of the kind are known.
func (l *lane) enqueueOf(gvk schema.GroupVersionKind) {
	for _, key := range l.e.cell.WorksIn(l.cluster) {
		work := l.e.cell.Works.Get(key)
		if work != nil && slices.ContainsFunc(work.Objects, func(o cell.Object) bool { return o.GroupVersionKind == gvk }) {
			l.queue.Add(key)
		}
	}
}

// wrote takes over an object as the member answered a write of ours. Agreed is the fingerprint of the manifest that it
// agrees with.
func (c *collection) wrote(obj *unstructured.Unstructured, agreed string) {
	c.observe(obj, agreed, func() (*unstructured.Unstructured, error) { return obj, nil })
}

// observe condenses an object. Agreed is the fingerprint of the manifest that the object is known to agree with; if it
// is empty and what matters has changed, it is found out, for which full returns the object with its managed fields.
func (c *collection) observe(obj *unstructured.Unstructured, agreed string, full func() (*unstructured.Unstructured, error)) {
	key, version := keyOf(obj), cell.Version(obj.GetResourceVersion())
	c.mu.Lock()
	before, remeaning := c.objects[key], c.remeaning
	if c.follower != nil && c.follower.seen != nil {
		c.follower.seen[key] = struct{}{}
	}
	c.mu.Unlock()
	if before != nil && before.UID == obj.GetUID() && before.version >= version && agreed == "" && !remeaning {
		return
	}
	now := &Observed{
		Work:    cell.Key{Namespace: cell.Shared(names.ExecutionNamespace(c.lane.cluster)), Name: cell.Shared(obj.GetAnnotations()[names.WorkNameAnnotation])},
		UID:     obj.GetUID(),
		version: version, digest: liveDigest(obj), agreed: agreed, deleting: obj.GetDeletionTimestamp() != nil,
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

	c.mu.Lock()
	if current := c.objects[key]; current != nil && current.UID == now.UID && current.version > now.version {
		c.mu.Unlock()
		return
	}
	c.objects[key] = now
	c.mu.Unlock()

	if now.agreed == "" || now.deleting {
		c.lane.queue.Add(now.Work)
	}
	if before == nil || before.Health != now.Health || before.agreed != now.agreed || before.settled != now.settled || !bytes.Equal(before.Status, now.Status) {
		c.lane.e.changed(now.Work)
	}
}

// compare returns the fingerprint of the Work's manifest if the object agrees with it and the manifest is at hand.
func (c *collection) compare(full func() (*unstructured.Unstructured, error), object, of cell.Key) string {
	e := c.lane.e
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
	desired, err := c.lane.manifest(work, manifests[i])
	if err != nil || !mayUpdate(obj, desired) {
		return ""
	}
	if _, changed, err := c.lane.merge(context.Background(), obj, desired); err != nil || changed {
		return ""
	}
	if len(work.Objects) == 1 {
		e.cell.Manifests.Forget(of) // nobody will ask for it
	}
	return work.Objects[i].Fingerprint
}

// interpret asks what the object's status means. An answer that cannot be had is replaced by the last one.
func (c *collection) interpret(obj *unstructured.Unstructured, now, before *Observed) {
	e := c.lane.e
	ctx := context.Background()
	status, err := e.interpreter.ReflectStatus(ctx, obj)
	if err != nil {
		c.tell(now.Work, "reflect", names.EventReflectStatusFailed, err)
		if before != nil {
			now.Status = before.Status
		}
	} else if status != nil {
		now.Status = cell.Status(cell.Canonical(status.Raw))
	}
	health, err := e.interpreter.Health(ctx, obj)
	if err != nil {
		c.tell(now.Work, "health", names.EventInterpretHealthFailed, err)
		health = "Unknown"
	}
	now.Health = workv1alpha1.ResourceHealth(health)
	now.settled = now.Health == workv1alpha1.ResourceHealthy && numbersSettled(now.Status)
}

func (c *collection) tell(key cell.Key, aspect, reason string, err error) {
	if work := c.lane.e.cell.Works.Get(key); work != nil {
		c.lane.e.recorder.Failed(events.OfWork(work), aspect, reason, err.Error())
	}
	klog.Background().V(2).Info("cannot interpret an object", "work", key, "err", err)
}

// numbersSettled tells whether a status, if it counts replicas, counts all of them as ready. It only decides how soon
// a status is passed on: one that will change in a moment is not worth a write.
func numbersSettled(status []byte) bool {
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

// liveDigest condenses everything about an object that a drift would change. Kinds that count generations need not be
// read in full.
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

// revisionAnnotation is kept by the member's own controller and changes with every rollout.
const revisionAnnotation = "deployment.kubernetes.io/revision"

func keyOf(obj *unstructured.Unstructured) cell.Key {
	return cell.Key{Namespace: cell.Shared(obj.GetNamespace()), Name: cell.Shared(obj.GetName())}
}
