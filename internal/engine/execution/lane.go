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

// The pause after a member refused a Work doubles from the first to the longest. A change of the Work ends it.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// lane is all that has to do with one member.
type lane struct {
	e       *Controller
	cluster string
	queue   *queue.Queue[cell.Key]

	mu          sync.Mutex
	member      *fleet.Member
	problem     error // why there is no member
	leaving     bool  // whether the cluster is gone or going
	collections map[schema.GroupVersionKind]*collection
}

func newLane(e *Controller, cluster string) *lane {
	return &lane{
		e: e, cluster: cluster, queue: queue.NewWithBackoff[cell.Key]("execution", firstPause, longestPause),
		problem: errors.New("cluster " + cluster + " is not connected yet"), collections: map[schema.GroupVersionKind]*collection{},
	}
}

// subscribe says what execution watches in the cell: Works, and how to reach members. What it watches in members
// depends on the Works.
func (e *Controller) subscribe() {
	e.cell.Works.Subscribe(func(key cell.Key, old, now *cell.Work) {
		work := now
		if work == nil {
			work = old
		}
		if work.Pulled {
			e.changed(key) // somebody else carries it; we only pass on what is said about it
			return
		}
		if old != nil && now != nil && old.Digest == now.Digest && old.Deleting == now.Deleting && old.Frozen == now.Frozen {
			return
		}
		l := e.lane(work.Cluster)
		for i := range work.Objects {
			l.follow(work.Objects[i].GroupVersionKind)
		}
		l.queue.AddNow(key)
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
	l := e.lane(cluster)
	e.mu.Lock()
	started := e.ctx != nil
	e.mu.Unlock()
	if started {
		l.connect()
	}
}

// connect opens, updates or closes the connection to the member as its Cluster and Secret say. If that changes what can
// be done, everything for the member is looked at again.
func (l *lane) connect() {
	cluster := l.e.cell.Clusters.Get(cell.Key{Name: l.cluster})
	secret, problem := l.secretOf(cluster)
	leaving := cluster == nil || cluster.DeletionTimestamp != nil
	if l.reconnect(cluster, secret, problem, leaving) {
		l.enqueueAll()
	}
}

func (l *lane) reconnect(cluster *clusterv1alpha1.Cluster, secret *corev1.Secret, problem error, leaving bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed, l.leaving = l.leaving != leaving, leaving
	if problem != nil {
		changed = changed || l.problem == nil || l.problem.Error() != problem.Error()
		l.problem = problem
		l.disconnect()
		return changed
	}
	if l.member != nil && l.member.Update(cluster, secret) {
		return changed
	}
	l.disconnect()
	member, err := fleet.OpenMember(l.e.ctx, cluster, secret)
	if err != nil {
		l.problem = err
		return true
	}
	member.OnRecovery(l.enqueueAll)
	l.member, l.problem = member, nil
	for _, collection := range l.collections {
		collection.start(member)
	}
	return true
}

// disconnect lets the member go. It is called with the lock held.
func (l *lane) disconnect() {
	if l.member != nil {
		l.member.Close()
		l.member = nil
	}
}

// secretOf returns the credentials for the member: those of this cell, or those of all.
func (l *lane) secretOf(cluster *clusterv1alpha1.Cluster) (*corev1.Secret, error) {
	if cluster == nil {
		return nil, fmt.Errorf("cluster %s does not exist; join it, or place the template elsewhere", l.cluster)
	}
	if cells := cluster.Annotations[names.UnfencedCellsAnnotation]; cells != "" {
		return nil, fmt.Errorf("cluster %s is not written to before the failed %s has lost its identity there", l.cluster, cells)
	}
	if cluster.Spec.SyncMode == clusterv1alpha1.Pull {
		return nil, fmt.Errorf("cluster %s pulls its work itself", l.cluster)
	}
	ref := cluster.Spec.SecretRef
	if ref == nil {
		return nil, fmt.Errorf("cluster %s has no secretRef; join it again", l.cluster)
	}
	for _, name := range []string{ref.Name + "." + l.e.cell.Name, ref.Name} {
		if secret := l.e.cell.Secrets.Get(cell.Key{Namespace: ref.Namespace, Name: name}); secret != nil {
			return secret, nil
		}
	}
	return nil, fmt.Errorf("the Secret %s/%s with the credentials of cluster %s does not exist; join it again", ref.Namespace, ref.Name, l.cluster)
}

func (l *lane) enqueueAll() {
	for _, key := range l.e.cell.WorksIn(l.cluster) {
		l.queue.AddNow(key)
	}
}

func (l *lane) current() (*fleet.Member, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.member, l.problem
}

// follow keeps up with our objects of a kind in the member.
func (l *lane) follow(gvk schema.GroupVersionKind) *collection {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.collections[gvk]
	if c == nil {
		c = newCollection(l, gvk)
		l.collections[gvk] = c
		if l.member != nil {
			c.start(l.member)
		}
	}
	return c
}

func (l *lane) reinterpret(concerned func(schema.GroupVersionKind) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for gvk, c := range l.collections {
		if !concerned(gvk) {
			continue
		}
		c.forgetMeaning() // also of a member that is not connected: it may come back with the same objects
		if l.member != nil {
			c.start(l.member)
		}
	}
}

// observed returns what is known of an object, how the member serves its kind, and whether all of the kind is known.
func (l *lane) observed(object *cell.Object) (observed *Observed, resource string, synced bool) {
	l.mu.Lock()
	c, broken := l.collections[object.GroupVersionKind], l.member == nil || l.member.Broken() != nil
	l.mu.Unlock()
	if c == nil {
		return nil, "", false
	}
	observed, resource, synced = c.get(object.Key)
	return observed, resource, synced && !broken
}

// selector picks the objects of this cell in a member.
func (l *lane) selector() string {
	return labels.Set{names.ManagedLabel: names.ManagedValue, names.CellLabel: l.e.cell.Name}.String()
}

// reconcile brings a Work's objects in the member up to date.
func (l *lane) reconcile(ctx context.Context, key cell.Key) error {
	work := l.e.cell.Works.Get(key)
	switch {
	case work == nil:
		l.e.outcomes.forget(key)
		l.e.cell.Manifests.Forget(key)
		return nil
	case work.Frozen, work.Pulled:
		return nil
	}
	start := time.Now()
	member, problem := l.current()
	if member != nil {
		problem = member.Broken()
	}
	if work.Deleting {
		return l.remove(ctx, member, problem, work)
	}
	if work.Suspended {
		l.e.changed(key)
		return nil
	}
	if problem != nil {
		if !l.e.outcomes.applied(work) {
			l.failed(work, problem) // the member's return brings us back
		}
		return nil
	}
	done, err := l.apply(ctx, member, work)
	if done || err != nil {
		syncDuration.WithLabelValues(l.cluster, result(err)).Observe(time.Since(start).Seconds())
	}
	if err == nil {
		l.succeeded(work, done)
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return l.troubled(member, work, err)
}

// troubled takes note of what went wrong with a Work and returns what is to be tried again for. If the member does not
// answer, its return brings us back.
func (l *lane) troubled(member *fleet.Member, work *cell.Work, err error) error {
	member.Report(err)
	l.failed(work, err)
	if fleet.Unreachable(err) && member.Broken() != nil {
		return nil
	}
	return err
}

func (l *lane) succeeded(work *cell.Work, done bool) {
	if l.e.outcomes.set(work.Key, Outcome{Digest: work.Digest, Applied: true}) || done {
		l.e.changed(work.Key)
	}
	l.concerned(work, func(about *corev1.ObjectReference, aspect string) {
		l.e.recorder.Succeeded(about, aspect, names.EventSyncSucceed, "applied in cluster "+l.cluster, false)
	})
}

func (l *lane) failed(work *cell.Work, err error) {
	reason := "AppliedFailed"
	var conflict *conflictError
	if errors.As(err, &conflict) {
		reason = "ResourceConflict"
	}
	if fleet.Unreachable(err) {
		err = silence(err)
	}
	if l.e.outcomes.set(work.Key, Outcome{Digest: work.Digest, Reason: reason, Message: shorten(err.Error())}) {
		l.e.changed(work.Key)
	}
	l.concerned(work, func(about *corev1.ObjectReference, aspect string) {
		l.e.recorder.Failed(about, aspect, names.EventSyncFailed, fmt.Sprintf("cluster %s: %v", l.cluster, err))
	})
}

// silence says that a member does not answer, and why, without the request that found out: the words stay the same
// while the member is gone, so that they are written once.
func silence(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("the member does not answer: %w", err)
}

// longestMessage keeps what a member quotes back at us, which may be all of an object, within what a condition can hold.
const longestMessage = 4 << 10

// shorten leaves out the middle of a long text: what was done is said at the beginning of an error, what is wrong at its
// end. What is no text, as a script may say, would be written as another one than it is compared with.
func shorten(text string) string {
	const ellipsis, end = " ... ", longestMessage / 4
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage-end-len(ellipsis)], "") + ellipsis + strings.ToValidUTF8(text[len(text)-end:], "")
}

// concerned calls a function with every object at which users look to learn what became of a Work.
func (l *lane) concerned(work *cell.Work, tell func(about *corev1.ObjectReference, aspect string)) {
	tell(events.OfWork(work), "sync")
	if work.Binding.Name == "" {
		return
	}
	binding := l.e.cell.Binding(work.Binding)
	if binding == nil {
		return
	}
	tell(events.OfBinding(binding), "sync:"+l.cluster)
	if template := l.e.cell.TemplateOf(binding); template != nil {
		tell(events.OfTemplate(template), "sync:"+l.cluster)
	}
}
