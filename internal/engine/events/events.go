// Package events records what happened to users' objects, once: when an outcome changes, not at every reconcile.
package events

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	policyv1alpha1 "github.com/cellplane/cellplane/api/policy/v1alpha1"
	workv1alpha1 "github.com/cellplane/cellplane/api/work/v1alpha1"
	workv1alpha2 "github.com/cellplane/cellplane/api/work/v1alpha2"
	"github.com/cellplane/cellplane/internal/engine/cell"
)

// Component is the source of the events.
const Component = "cellplane-engine"

// Recorder writes events in the background. Callers do not wait, and events are dropped when there are too many. A nil
// Recorder writes none.
type Recorder struct {
	outbox    chan *corev1.Event
	mode      Successes
	successes *successes

	mu   sync.Mutex
	last *lru.Cache // subject → outcome
}

// backlog is the number of events that may wait to be written, writers the number of concurrent writes.
const (
	backlog = 10000
	writers = 4
)

// remembered is the number of subjects whose last outcome is known. For a forgotten subject the event is repeated.
const remembered = 20000

// Subject is one aspect of one object.
type Subject struct {
	UID    types.UID
	Aspect string
}

// outcome of a subject; a failure has a text.
type outcome struct{ reason, failure string }

// NewRecorder returns a recorder that writes to a cell until the context ends.
func NewRecorder(ctx context.Context, client kubernetes.Interface, mode Successes) *Recorder {
	r := &Recorder{outbox: make(chan *corev1.Event, backlog), mode: mode, successes: newSuccesses(), last: lru.New(remembered)}
	to := &cellEvents{client}
	for range writers {
		go r.write(ctx, to)
	}
	for range writers {
		go r.successes.run(ctx, to)
	}
	return r
}

// cellEvents writes events to a cell.
type cellEvents struct{ client kubernetes.Interface }

func (c *cellEvents) create(ctx context.Context, event *corev1.Event) error {
	_, err := c.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

func (c *cellEvents) patch(ctx context.Context, namespace, name string, patch []byte) error {
	_, err := c.client.CoreV1().Events(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (r *Recorder) write(ctx context.Context, to store) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-r.outbox:
			if err := to.create(ctx, event); err != nil && ctx.Err() == nil {
				report(ctx, event, err)
			}
		}
	}
}

func report(ctx context.Context, event *corev1.Event, err error) {
	klog.FromContext(ctx).V(1).Info("cannot write event", "reason", event.Reason, "about", event.InvolvedObject, "err", err)
}

// longestMessage is the limit of the API server.
const longestMessage = 1024

func (r *Recorder) send(about *corev1.ObjectReference, severity, reason, message string) {
	select {
	case r.outbox <- newEvent(about, severity, reason, message, time.Now()):
	default:
		klog.Background().V(1).Info("too many events, dropping one", "reason", reason, "about", about.Name)
	}
}

// Failed records a failure, unless it is the last outcome recorded for the aspect.
func (r *Recorder) Failed(about *corev1.ObjectReference, aspect, reason, message string) {
	if about != nil && r.changed(about, aspect, outcome{reason, message}) {
		r.send(about, corev1.EventTypeWarning, reason, message)
	}
}

// Succeeded records a success if something was done, or if the aspect failed before. The latter is written at once.
func (r *Recorder) Succeeded(about *corev1.ObjectReference, aspect, reason, message string, done bool) {
	if r == nil || about == nil {
		return
	}
	failedBefore := r.failedBefore(about, aspect)
	changed := r.changed(about, aspect, outcome{reason: reason})
	switch {
	case r.mode == SuccessesOff:
	case failedBefore && changed, done && r.mode != SuccessesAll:
		r.send(about, corev1.EventTypeNormal, reason, message)
	case done:
		r.successes.add(about, reason, message)
	}
}

// Also records a success that is written only if all successes are, or if the aspect failed before.
func (r *Recorder) Also(about *corev1.ObjectReference, aspect, reason, message string, done bool) {
	if r != nil {
		r.Succeeded(about, aspect, reason, message, done && r.mode == SuccessesAll)
	}
}

func (r *Recorder) failedBefore(about *corev1.ObjectReference, aspect string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.last.Get(Subject{about.UID, aspect})
	return known && last.(outcome).failure != ""
}

func (r *Recorder) changed(about *corev1.ObjectReference, aspect string, now outcome) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	subject := Subject{about.UID, aspect}
	last, known := r.last.Get(subject)
	if known && last.(outcome) == now {
		return false
	}
	if !known && now.failure == "" {
		return true // the first success of a subject need not be remembered
	}
	r.last.Add(subject, now)
	return true
}

// Both refers to a binding and its template: users look for events on either.
func Both(c *cell.Cell, b *workv1alpha2.ResourceBinding) []*corev1.ObjectReference {
	return []*corev1.ObjectReference{OfBinding(b), OfTemplate(c.TemplateOf(b))}
}

// OfTemplate refers to a template. Of nil nothing is reported.
func OfTemplate(t *cell.Template) *corev1.ObjectReference {
	if t == nil {
		return nil
	}
	apiVersion, kind := t.Kind.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID, ResourceVersion: t.Version}
}

// OfPolicy refers to a policy.
func OfPolicy(kind string, p metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: policyv1alpha1.GroupVersion.String(), Kind: kind, Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUID(), ResourceVersion: p.GetResourceVersion()}
}

// OfBinding refers to a binding of either kind.
func OfBinding(b *workv1alpha2.ResourceBinding) *corev1.ObjectReference {
	kind := "ResourceBinding"
	if b.Namespace == "" {
		kind = "ClusterResourceBinding"
	}
	return &corev1.ObjectReference{APIVersion: workv1alpha2.GroupVersion.String(), Kind: kind, Namespace: b.Namespace, Name: b.Name, UID: b.UID, ResourceVersion: b.ResourceVersion}
}

// OfWork refers to a Work.
func OfWork(w *cell.Work) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: workv1alpha1.GroupVersion.String(), Kind: "Work", Namespace: w.Namespace, Name: w.Name, UID: w.UID, ResourceVersion: w.Version}
}
