package execution

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1alpha1 "github.com/cellplane/cellplane/api/cluster/v1alpha1"
	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/engine/events"
	"github.com/cellplane/cellplane/internal/engine/queue"
	"github.com/cellplane/cellplane/internal/fleet"
)

// The back-off after a member refused a Work doubles from the first to the longest. A change of the Work ends it.
const (
	firstBackoff   = time.Second
	longestBackoff = time.Minute
)

// memberQueue is the queue of Works for one member, with the connection to the member and a cache of our objects there.
type memberQueue struct {
	e       *Controller
	cluster string
	works   *queue.Queue[cell.Key]

	mu          sync.Mutex
	member      *fleet.Member
	problem     error // why there is no connection
	leaving     bool  // the cluster is deleted or being deleted
	collections map[schema.GroupVersionKind]*collection
	unmarked    map[schema.GroupVersionKind]*unmarked
	feeds       []Feed
}

func newMemberQueue(e *Controller, cluster string) *memberQueue {
	return &memberQueue{
		e: e, cluster: cluster, works: queue.NewWithBackoff[cell.Key]("execution", firstBackoff, longestBackoff),
		problem: errors.New("cluster " + cluster + " is not connected yet"), collections: map[schema.GroupVersionKind]*collection{},
		unmarked: map[schema.GroupVersionKind]*unmarked{},
	}
}

// subscribe watches Works, Clusters and credentials in the cell. The Works decide what is watched in members.
func (e *Controller) subscribe() {
	e.cell.Works.Subscribe(func(key cell.Key, old, now *cell.Work) {
		work := now
		if work == nil {
			work = old
		}
		if work.Pulled {
			e.changed(key) // the member's agent applies it; we only report its status
			return
		}
		if e.own != nil && old != nil && now != nil && (old.UID != now.UID || old.Generation != now.Generation) {
			e.changed(key) // the status says which generation is applied
		}
		if old != nil && now != nil && old.Digest == now.Digest && old.Deleting == now.Deleting && old.Frozen == now.Frozen {
			return
		}
		q := e.queueOf(work.Cluster)
		for i := range work.Objects {
			q.watch(work.Objects[i].GroupVersionKind)
		}
		q.works.AddNow(key)
	})
	e.cell.Clusters.Subscribe(func(key cell.Key, _, _ *clusterv1alpha1.Cluster) { e.reconnect(key.Name) })
	e.cell.Secrets.Subscribe(func(key cell.Key, _, _ *corev1.Secret) {
		for _, cluster := range e.cell.Clusters.All() {
			if ref := cluster.Spec.SecretRef; ref != nil && (key.Name == ref.Name || key.Name == ref.Name+"."+e.cell.Name) {
				e.reconnect(cluster.Name)
			}
		}
	})
}

func (e *Controller) reconnect(cluster string) {
	q := e.queueOf(cluster)
	e.mu.Lock()
	started := e.ctx != nil
	e.mu.Unlock()
	if started {
		q.connect()
	}
}

// connect opens, updates or closes the connection to the member to match its Cluster and Secret. If the connection
// changes, all Works of the member are reconciled.
func (q *memberQueue) connect() {
	cluster := q.e.cell.Clusters.Get(cell.Key{Name: q.cluster})
	var secret *corev1.Secret
	var problem error
	if q.e.own == nil {
		secret, problem = q.secretOf(cluster)
	}
	leaving := cluster == nil || cluster.DeletionTimestamp != nil
	if q.reconnect(cluster, secret, problem, leaving) {
		q.mayAnswer()
	}
}

func (q *memberQueue) reconnect(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret, problem error, leaving bool) (changed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed, q.leaving = q.leaving != leaving, leaving
	if problem != nil {
		changed = changed || q.problem == nil || q.problem.Error() != problem.Error()
		q.problem = problem
		q.disconnect()
		return changed
	}
	if q.member != nil && q.member.Update(cluster, secret) {
		return changed
	}
	q.disconnect()
	member, err := q.open(cluster, secret)
	if err != nil {
		q.problem = err
		return true
	}
	member.OnRecovery(q.mayAnswer)
	q.member, q.problem = member, nil
	for _, collection := range q.collections {
		collection.start(member)
	}
	for _, unmarked := range q.unmarked {
		unmarked.start(member)
	}
	for _, feed := range q.feeds {
		feed.start(member)
	}
	return true
}

func (q *memberQueue) open(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret) (*fleet.Member, error) {
	if q.e.own != nil {
		return fleet.OpenOwnMember(q.e.ctx, q.cluster, q.e.own)
	}
	return fleet.OpenMember(q.e.ctx, cluster, secret)
}

// disconnect closes the connection. It is called with the lock held.
func (q *memberQueue) disconnect() {
	if q.member != nil {
		q.member.Close()
		q.member = nil
	}
}

// secretOf returns the credentials for the member: those of this cell, or those for all cells.
func (q *memberQueue) secretOf(cluster *clusterv1alpha1.Cluster) (*corev1.Secret, error) {
	if cluster == nil {
		return nil, fmt.Errorf("cluster %s does not exist; join it, or place the template elsewhere", q.cluster)
	}
	if cells := cluster.Annotations[names.UnfencedCellsAnnotation]; cells != "" {
		return nil, fmt.Errorf("cluster %s is fenced: it is not written to before the failed %s has lost its credentials there", q.cluster, cells)
	}
	if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
		return nil, fmt.Errorf("cluster %s is in pull mode: its agent applies the Works", q.cluster)
	}
	ref := cluster.Spec.SecretRef
	if ref == nil {
		return nil, fmt.Errorf("cluster %s has no secretRef; join it again", q.cluster)
	}
	for _, name := range []string{ref.Name + "." + q.e.cell.Name, ref.Name} {
		if secret := q.e.cell.Secrets.Get(cell.Key{Namespace: ref.Namespace, Name: name}); secret != nil {
			return secret, nil
		}
	}
	return nil, fmt.Errorf("the Secret %s/%s with the credentials of cluster %s does not exist; join it again", ref.Namespace, ref.Name, q.cluster)
}

// mayAnswer is called when the member is back, or its connection has changed.
func (q *memberQueue) mayAnswer() {
	q.enqueueAll()
	q.e.answers(q.cluster)
}

func (q *memberQueue) enqueueAll() {
	for _, key := range q.e.cell.WorksIn(q.cluster) {
		q.works.AddNow(key)
	}
}

func (q *memberQueue) current() (*fleet.Member, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.member, q.problem
}

// watch watches our objects of a kind in the member.
func (q *memberQueue) watch(gvk schema.GroupVersionKind) *collection {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.collections[gvk]
	if c == nil {
		c = newCollection(q, gvk)
		q.collections[gvk] = c
		if q.member != nil {
			c.start(q.member)
		}
	}
	return c
}

func (q *memberQueue) reinterpret(affected func(schema.GroupVersionKind) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for gvk, c := range q.collections {
		if !affected(gvk) {
			continue
		}
		c.reinterpret() // also without a connection: the member may come back with the same objects
		if q.member != nil {
			c.start(q.member)
		}
	}
}

// observed returns an object from the cache, the resource of its kind, and whether the cache has synced.
func (q *memberQueue) observed(object *cell.Object) (observed *Observed, resource string, synced bool) {
	q.mu.Lock()
	c, broken := q.collections[object.GroupVersionKind], q.member == nil || q.member.Broken() != nil
	q.mu.Unlock()
	if c == nil {
		return nil, "", false
	}
	observed, resource, synced = c.get(object.Key)
	return observed, resource, synced && !broken
}

// selector selects the objects of this cell in a member; in an agent, those of all cells.
func (q *memberQueue) selector() string {
	if q.e.own != nil {
		return labels.Set{names.ManagedLabel: names.ManagedValue}.String()
	}
	return labels.Set{names.ManagedLabel: names.ManagedValue, names.CellLabel: q.e.cell.Name}.String()
}

// reconcile applies the objects of a Work in the member.
func (q *memberQueue) reconcile(ctx context.Context, key cell.Key) error {
	// 1. Skip Works that are gone, and those that somebody else applies.
	work := q.e.cell.Works.Get(key)
	switch {
	case work == nil:
		q.e.outcomes.forget(key)
		open := q.e.entries.set(key, nil)
		q.countEntries(open, nil)
		q.unfollow(&cell.Work{Key: key}, open, nil)
		q.stopComparing(key)
		q.e.cell.Manifests.Forget(key)
		return nil
	case work.Frozen:
		return q.follow(ctx, key)
	case work.Pulled:
		return nil
	}

	if !work.ReportOnly || work.Deleting {
		q.stopComparing(key)
	}

	// 2. Remove the objects of a Work that is being deleted.
	start := time.Now()
	member, problem := q.current()
	if member != nil {
		problem = member.Broken()
	}
	if work.Deleting {
		return q.remove(ctx, member, problem, work)
	}

	// 3. Leave the objects as they are while dispatching is suspended or the member is unreachable. A member that comes
	// back enqueues its Works. Report how the objects differ, if nothing else is wanted.
	if work.ReportOnly {
		return q.compareOnly(ctx, member, problem, work)
	}
	if work.Suspended {
		q.e.changed(key)
		return again(q.reportEntries(work, nil))
	}
	if problem != nil {
		if !q.e.outcomes.applied(work) {
			q.failed(work, problem)
		}
		return nil
	}

	// 4. Create or update the objects that differ from their manifests.
	written, err := q.apply(ctx, member, work)
	if written || err != nil {
		syncDuration.WithLabelValues(result(err)).Observe(time.Since(start).Seconds())
	}

	// 5. Record the outcome, for status and events.
	after := q.reportEntries(work, err)
	switch {
	case err == nil:
		q.succeeded(work, written)
		return again(after)
	case isOpen(err):
		q.heldBack(work, err)
		return again(after)
	case errors.Is(err, context.Canceled):
		return err
	default:
		return q.memberFailed(member, work, err)
	}
}

// movePoll is how often an agent looks for the Work that replaces a frozen one.
const movePoll = 2 * time.Second

// follow reads the Work that replaces a frozen one in another cell. Only an agent does so: other engines apply theirs.
func (q *memberQueue) follow(ctx context.Context, key cell.Key) error {
	if q.e.own == nil {
		return nil
	}
	if fresh, err := q.e.cell.ReadWork(ctx, key); err != nil || fresh.Frozen {
		return queue.Later{After: movePoll}
	}
	return nil
}

// again asks for another reconciliation; 0 means that none is needed.
func again(after time.Duration) error {
	if after == 0 {
		return nil
	}
	return queue.Later{After: after}
}

// memberFailed records a failed request to the member and returns the error to retry for. It returns nil if the member
// is unreachable: when it comes back, it enqueues its Works.
func (q *memberQueue) memberFailed(member *fleet.Member, work *cell.Work, err error) error {
	member.Report(err)
	q.failed(work, err)
	if fleet.Unreachable(err) && member.Broken() != nil {
		return nil
	}
	return err
}

func (q *memberQueue) succeeded(work *cell.Work, written bool) {
	if q.e.outcomes.set(work.Key, Outcome{Digest: work.Digest, Applied: true}) || written {
		q.e.changed(work.Key)
	}
	q.forEachSubject(work, func(about *corev1.ObjectReference, aspect string) {
		q.e.recorder.Also(about, aspect, names.EventSyncSucceed, "applied in cluster "+q.cluster, written)
	})
}

func (q *memberQueue) failed(work *cell.Work, err error) {
	reason := "AppliedFailed"
	var conflict *conflictError
	if errors.As(err, &conflict) {
		reason = "ResourceConflict"
	}
	if fleet.Unreachable(err) {
		err = unreachable(err)
	}
	if q.e.outcomes.set(work.Key, Outcome{Digest: work.Digest, Reason: reason, Message: shorten(err.Error())}) {
		q.e.changed(work.Key)
	}
	q.forEachSubject(work, func(about *corev1.ObjectReference, aspect string) {
		q.e.recorder.Failed(about, aspect, names.EventSyncFailed, fmt.Sprintf("cluster %s: %v", q.cluster, err))
	})
}

// unreachable describes why a member does not answer. It leaves out the request, so that the message stays the same
// while the member is unreachable and is written once.
func unreachable(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("the member does not answer: %w", err)
}

// longestMessage keeps messages within what a condition can hold: a member may quote a whole object in an error.
const longestMessage = 4 << 10

// shorten leaves out the middle of a long text: an error begins with what was done and ends with what is wrong. Invalid
// UTF-8, such as a script may return, is replaced: the API server would store something else than is compared later.
func shorten(text string) string {
	const ellipsis, end = " ... ", longestMessage / 4
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage-end-len(ellipsis)], "") + ellipsis + strings.ToValidUTF8(text[len(text)-end:], "")
}

// forEachSubject calls record for the Work, its binding and its template: users look for events on all of them.
func (q *memberQueue) forEachSubject(work *cell.Work, record func(about *corev1.ObjectReference, aspect string)) {
	record(events.OfWork(work), "sync")
	if work.Binding.Name == "" {
		return
	}
	binding := q.e.cell.Binding(work.Binding)
	if binding == nil {
		return
	}
	record(events.OfBinding(binding), "sync:"+q.cluster)
	if template := q.e.cell.TemplateOf(binding); template != nil {
		record(events.OfTemplate(template), "sync:"+q.cluster)
	}
}
