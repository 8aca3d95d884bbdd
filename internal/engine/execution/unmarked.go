package execution

import (
	"bytes"
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
	"github.com/cellplane/cellplane/internal/fleet"
)

// unmarked caches objects of a kind in a member that do not carry our labels, for Works that are only reported about, and for open objects with the labels of another cell.
type unmarked struct {
	collection *collection
	cancel     context.CancelFunc // ends the watch; guarded by the queue's lock

	mu    sync.Mutex
	works map[cell.Key]cell.Key // by object
	seen  map[cell.Key]*Observed
}

// unmarkedWatch is one watch of them. It implements fleet.Sink. After a change of the connection an earlier one may still be in the middle of a list.
type unmarkedWatch struct {
	*unmarked
	unlisted map[cell.Key]struct{} // during a list: what was cached before, and is not in the list so far
}

// lookOut watches an object that does not carry our labels.
func (q *memberQueue) lookOut(object *cell.Object, work cell.Key) {
	c := q.watch(object.GroupVersionKind)
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.unmarked[object.GroupVersionKind]
	if u == nil {
		u = &unmarked{collection: c, works: map[cell.Key]cell.Key{}, seen: map[cell.Key]*Observed{}}
		q.unmarked[object.GroupVersionKind] = u
		if q.member != nil {
			u.start(q.member)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.works[object.Key] = work
}

// lookAway ends the watch of an object. The watch of its kind ends with the last one.
func (q *memberQueue) lookAway(object *cell.Object, work cell.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.unmarked[object.GroupVersionKind]
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.works[object.Key] != work {
		return
	}
	delete(u.works, object.Key)
	delete(u.seen, object.Key)
	if len(u.works) == 0 {
		delete(q.unmarked, object.GroupVersionKind)
		if u.cancel != nil {
			u.cancel()
		}
	}
}

// sawNone forgets an object that was read and does not exist.
func (q *memberQueue) sawNone(object *cell.Object) {
	if u := q.unmarkedOf(object); u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.seen, object.Key)
	}
}

// sawUnmarked caches an object that was read.
func (q *memberQueue) sawUnmarked(object *cell.Object, work cell.Key, live *unstructured.Unstructured) {
	if u := q.unmarkedOf(object); u != nil {
		u.observe(work, live, false)
	}
}

// unmarkedIn returns what is known about an object of a Work that does not carry our labels, nil if nothing is.
func (q *memberQueue) unmarkedIn(object *cell.Object, work cell.Key) *Observed {
	u := q.unmarkedOf(object)
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if seen := u.seen[object.Key]; seen != nil && seen.Work == work {
		return seen
	}
	return nil
}

func (q *memberQueue) unmarkedOf(object *cell.Object) *unmarked {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unmarked[object.GroupVersionKind]
}

// start watches through a connection until it ends. It is called with the lock of the queue held.
func (u *unmarked) start(member *fleet.Member) {
	if u.cancel != nil {
		u.cancel()
	}
	ctx, cancel := context.WithCancel(member.Context())
	u.cancel = cancel
	selector := u.collection.queue.unmarkedSelector()
	go func() {
		if served, ok := find(ctx, member, u.collection.gvk); ok {
			member.Watch(ctx, served.Resource, selector, &unmarkedWatch{unmarked: u})
		}
	}()
}

// unmarkedSelector selects all objects that the watch of marked ones does not see. An agent cannot say so in a selector: the objects of another
// federation have the same label.
func (q *memberQueue) unmarkedSelector() string {
	if q.e.own != nil {
		return ""
	}
	return names.CellLabel + "!=" + q.e.cell.Name
}

// Set notices a change of an object.
func (u *unmarkedWatch) Set(from runtime.Object) {
	obj, ok := from.(*fleet.Bare)
	if !ok {
		return
	}
	key := keyOf(obj.Unstructured)
	u.mu.Lock()
	work, wanted := u.works[key]
	delete(u.unlisted, key)
	u.mu.Unlock()
	if wanted {
		defer recovered(u.collection.gvk, key)
		u.observe(work, obj.Unstructured, true)
	}
}

// observe caches the condensed form of an object. If it was not read for the comparison of its Work, that is made anew.
func (u *unmarked) observe(work cell.Key, obj *unstructured.Unstructured, compare bool) {
	c, key := u.collection, keyOf(obj)
	now := &Observed{Work: work, UID: obj.GetUID(), version: cell.Version(obj.GetResourceVersion()), digest: liveDigest(obj), deleting: obj.GetDeletionTimestamp() != nil}
	u.mu.Lock()
	before := u.seen[key]
	u.mu.Unlock()
	same := before != nil && before.UID == now.UID
	if same && before.version >= now.version {
		return
	}
	if open, is := entry.Of(obj.GetAnnotations()); is {
		now.Entry = &open
	}
	c.interpret(obj, now, before)
	c.setRollout(obj, now, before)
	u.mu.Lock()
	if current := u.seen[key]; u.works[key] == work && (current == nil || current.UID != now.UID || current.version < now.version) {
		u.seen[key] = now
	}
	u.mu.Unlock()
	if compare && (!same || before.digest != now.digest || before.deleting != now.deleting) {
		c.queue.works.Add(work)
	}
	if !same || before.Health != now.Health || !bytes.Equal(before.Status, now.Status) || now.Rollout.Progressed(before.Rollout) {
		c.queue.e.changed(work)
	}
}

// Unset notices that an object is gone, or carries our labels now.
func (u *unmarkedWatch) Unset(from runtime.Object) {
	if obj, ok := from.(*fleet.Bare); ok {
		u.forget(keyOf(obj.Unstructured))
	}
}

func (u *unmarked) forget(key cell.Key) {
	u.mu.Lock()
	work, wanted := u.works[key]
	delete(u.seen, key)
	u.mu.Unlock()
	if wanted {
		u.collection.queue.works.Add(work)
		u.collection.queue.e.changed(work)
	}
}

// Relist begins a list; the function ends it and notices which objects are gone.
func (u *unmarkedWatch) Relist() (done func(resourceVersion string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unlisted = map[cell.Key]struct{}{}
	for key := range u.seen {
		u.unlisted[key] = struct{}{}
	}
	return func(resourceVersion string) {
		for _, key := range u.missing(cell.Version(resourceVersion)) {
			u.forget(key)
		}
	}
}

// missing ends a list and returns the objects that it lacks.
func (u *unmarkedWatch) missing(version uint64) (gone []cell.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key := range u.unlisted {
		if seen := u.seen[key]; seen != nil && seen.version <= version {
			gone = append(gone, key)
		}
	}
	u.unlisted = nil
	return gone
}
