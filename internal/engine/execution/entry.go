package execution

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cellplane/cellplane/api/names"
	"github.com/cellplane/cellplane/internal/engine/cell"
	"github.com/cellplane/cellplane/internal/entry"
)

// Opened is an object that is out of the federation's hands.
type Opened struct {
	Object cell.Object
	entry.Entry
}

// Describe says which object it is, and in whose hands.
func (o *Opened) Describe(cluster string, now time.Time) string {
	return fmt.Sprintf("%s in cluster %s is %s", &o.Object, cluster, o.Entry.Describe(now))
}

// openError means that the object differs from what the federation wants, and must not be written.
type openError struct{ Opened }

// Error says what to do about it.
func (e *openError) Error() string {
	return fmt.Sprintf("%s is %s; the federation does not write to it before that is closed", &e.Object, e.Entry.Describe(time.Now()))
}

// isOpen reports whether nothing but open entries kept objects from being written.
func isOpen(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if !isOpen(one) {
				return false
			}
		}
		return true
	}
	var open *openError
	return errors.As(err, &open)
}

// entries are the open objects of Works.
type entries struct {
	mu sync.Mutex
	of map[cell.Key][]Opened
}

func (e *entries) get(work cell.Key) []Opened {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[work]
}

// set returns what was there before.
func (e *entries) set(work cell.Key, open []Opened) []Opened {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.of[work]
	if len(open) == 0 {
		delete(e.of, work)
		return before
	}
	if e.of == nil {
		e.of = map[cell.Key][]Opened{}
	}
	e.of[work] = open
	return before
}

// entryPoll is how often an open object is looked at. The watch sees most changes before, but not those of objects that do not carry our labels yet.
const entryPoll = time.Minute

// reportEntries reports which objects of a Work are open, and returns when to look at them again; 0 if none is. Err is the outcome of the last attempt to
// write them.
func (q *memberQueue) reportEntries(work *cell.Work, err error) time.Duration {
	open := q.openOf(work, err)
	before := q.e.entries.set(work.Key, open)
	if len(open) == 0 && len(before) == 0 {
		return 0
	}
	q.countEntries(before, open)
	q.unfollow(work, before, open)
	now, after := time.Now(), entryPoll
	for i := range open {
		if left := open[i].Until.Sub(now); left > 0 && left < after {
			after = left
		}
	}
	q.e.changed(work.Key) // also if only time has passed
	q.forEachSubject(work, func(about *corev1.ObjectReference, _ string) {
		aspect := "entry:" + q.cluster
		switch {
		case len(open) == 0:
			q.e.recorder.Succeeded(about, aspect, names.EventEntryClosed, before[0].Object.Kind+" in cluster "+q.cluster+" is in the hands of the federation again", false)
		case open[0].Overdue(now):
			q.e.recorder.Failed(about, aspect, names.EventEntryOverdue, open[0].Describe(q.cluster, now))
		default:
			q.e.recorder.Failed(about, aspect, names.EventEntryOpen, open[0].Describe(q.cluster, now))
		}
	})
	if len(open) == 0 {
		return 0
	}
	return after
}

// followOpen watches an open object that does not carry our labels: its template was in another cell before. Not even labels are written to it, but its status is reported.
func (q *memberQueue) followOpen(work *cell.Work, object *cell.Object, live *unstructured.Unstructured) {
	if q.e.own != nil || live.GetLabels()[names.CellLabel] == q.e.cell.Name {
		return // the watch of our objects sees it
	}
	q.lookOut(object, work.Key)
	q.sawUnmarked(object, work.Key, live)
}

// unfollow ends that for objects that are not open any more.
func (q *memberQueue) unfollow(work *cell.Work, before, open []Opened) {
	for i := range before {
		was := &before[i].Object
		still := slices.ContainsFunc(open, func(o Opened) bool {
			return o.Object.GroupVersionKind == was.GroupVersionKind && o.Object.Key == was.Key
		})
		if !still && !work.ReportOnly { // that one is watched for its comparison
			q.lookAway(was, work.Key)
		}
	}
}

// openOf returns the objects of a Work that are open: as read a moment ago, or as observed.
func (q *memberQueue) openOf(work *cell.Work, err error) []Opened {
	var open []Opened
	for i := range work.Objects {
		object := &work.Objects[i]
		if refused := openErrorOf(err, object); refused != nil {
			open = append(open, refused.Opened)
			continue
		}
		if observed, _, _ := q.observed(object); observed != nil && observed.Work == work.Key && observed.Entry != nil {
			open = append(open, Opened{Object: *object, Entry: *observed.Entry})
		}
	}
	return open
}

func openErrorOf(err error, object *cell.Object) *openError {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if found := openErrorOf(one, object); found != nil {
				return found
			}
		}
		return nil
	}
	var open *openError
	if errors.As(err, &open) && open.Object.GroupVersionKind == object.GroupVersionKind && open.Object.Key == object.Key {
		return open
	}
	return nil
}

// countEntries updates the metric.
func (q *memberQueue) countEntries(before, open []Opened) {
	in := func(o *Opened) group { return group{q.cluster, o.Object.Kind, o.Object.Namespace} }
	for i := range before {
		openEntries.remove(in(&before[i]), before[i].Object.Name)
	}
	for i := range open {
		until := 0.0
		if !open[i].Until.IsZero() {
			until = float64(open[i].Until.Unix())
		}
		openEntries.set(in(&open[i]), open[i].Object.Name, until)
	}
}

// heldBack records that objects of a Work were not written because they are open.
func (q *memberQueue) heldBack(work *cell.Work, err error) {
	if q.e.outcomes.set(work.Key, Outcome{Digest: work.Digest, Reason: names.ReasonEntryOpen, Message: shorten(err.Error())}) {
		q.e.changed(work.Key)
	}
}
